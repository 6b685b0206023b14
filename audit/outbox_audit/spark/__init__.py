"""The audit as a job of Spark, for more records than one process can compare.

What is compared is sorted first, so that each row needs to be compared with few others. So the memory that a
task needs does not grow with the records: what does not fit is on its disk.
"""

from outbox_audit.spark.job import MASTER, compare, spark

__all__ = ["MASTER", "compare", "spark"]
