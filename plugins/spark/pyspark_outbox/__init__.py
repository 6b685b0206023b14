"""Spark's source ``outbox``: ``spark.readStream.format("outbox")``.

Spark imports all top-level packages whose names begin with ``pyspark_``, and registers their
``DefaultSource``.
"""

from pyspark_outbox.source import DefaultSource

__all__ = ["DefaultSource"]
