"""Spark's sink ``outbox-kafka``: ``df.writeStream.format("outbox-kafka")``.

Spark imports all top-level packages whose names begin with ``pyspark_``, and registers their
``DefaultSource``.
"""

from pyspark_outbox_kafka.sink import DefaultSource

__all__ = ["DefaultSource"]
