"""A session of Spark for the tests of one file, in its process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from outbox_spark.application import Application


@contextmanager
def session(name: str) -> Iterator[Any]:
    """Runs Spark with two slots, as patient as a busy machine needs it."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - not without Arrow

    settings = {"spark.sql.shuffle.partitions": "2", "spark.python.authenticate.socketTimeout": "120s"}
    application = Application(name, "local[2]", settings)
    yield SparkSession(application.context)
    SparkSession._instantiatedSession = None
    application.stop()


def started(writer: Any) -> Any:
    """Starts a query, and again if its Python has not come up within Spark's ten seconds."""
    while True:
        query = writer.start()
        while query.isActive and query.status["message"].startswith("Initializing"):
            time.sleep(0.05)
        if "worker failed to connect back" not in str(query.exception()):
            return query
