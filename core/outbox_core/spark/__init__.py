"""The Spark engine; the only importer of PySpark."""

from outbox_core.spark.engine import SparkEngine

__all__ = ["SparkEngine"]
