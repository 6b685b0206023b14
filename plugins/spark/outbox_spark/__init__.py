"""Runs lane groups as long-running tasks of a Spark application (engine ``spark``), embedded or on a cluster.

Each lane group is a Spark job of its own with one task, which runs the lanes until the leadership is over.
One job for each group, because a lost worker then takes no other group with it; no micro-batches, because
starting one takes longer than moving a thousand records.
"""

from __future__ import annotations

from outbox_api import Driver, Engine, hookimpl

from outbox_spark.options import SparkOptions

__all__ = ["SparkOptions", "create", "outbox_engine"]


def create(options: SparkOptions) -> Engine:
    """Makes the engine ``spark``; starts nothing."""
    from outbox_spark.engine import SparkEngine  # noqa: PLC0415 - loads PySpark

    return SparkEngine(options)


@hookimpl
def outbox_engine() -> Driver[Engine]:
    """Offers the engine on Spark."""
    return Driver(options=SparkOptions, create=create)
