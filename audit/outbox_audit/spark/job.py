"""The job: what it reads, finds and writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Event, Thread
from typing import Any

from outbox_api import DriverError, OutboxError
from outbox_spark.application import Application
from outbox_spark.security import require_authentication
from outbox_spark.workers import reason
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's users know it by this name

from outbox_audit.comparison import Comparison, Progress, plan_audits
from outbox_audit.result import Defect
from outbox_audit.spark.findings import find, judge
from outbox_audit.spark.sources import committed, entries, messages, pieces
from outbox_audit.topic import SEQUENCE_HEADER, Isolation, read_stretches, stretches

MASTER = "local[*]"
"""Where it runs unless it is told: on all processors of this machine."""

_SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.task.maxFailures": "4",  # Spark's own again: the loss of an executor does not end an audit
}
_PROGRESS_SECONDS = 1.0
_DRIVER_ERROR = f"{DriverError.__module__}.{DriverError.__name__}: "


@contextmanager
def spark(master: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Yields a Spark application of this process, and stops it; there is one at a time.

    Args:
        master: The master's URL.
        settings: Spark's settings.

    Raises:
        ConfigError: Others on this machine could read the tasks, and so the passwords of the broker.
        OutboxError: Spark does not start; or a job in the block fails.
        DriverError: Because a task cannot read a topic.
    """
    require_authentication(master, settings)
    application = Application("audit", master, {**_SETTINGS, **settings, "spark.master": master})
    try:
        yield SparkSession(application.context)
    except (PySparkException, Py4JError, OSError) as error:
        why = reason(error) if application.alive else application.trouble
        if why.startswith(_DRIVER_ERROR):
            raise DriverError(why.removeprefix(_DRIVER_ERROR), retryable=True) from error
        raise OutboxError(f"the audit's Spark job failed: {why}") from error
    finally:
        application.stop()


def compare(
    session: SparkSession,
    ledger: str,
    topics: Sequence[str],
    kafka: Mapping[str, Any],
    header: str = SEQUENCE_HEADER,
    *,
    progress: Progress = lambda _: None,
    isolation: Isolation = Isolation.READ_COMMITTED,
    anomalies: str | None = None,
) -> list[Comparison]:
    """Compares a ledger with topics as :func:`outbox_audit.compare` does, with the same results.

    Messages have arrived in the order of topic, partition and offset, and the examples are the first in this
    order; those of lost records are the first by key and sequence.

    Args:
        session: Where it runs.
        ledger: A file or folder of JSON lines, or of Parquet with the columns ``key``, ``sequence`` and,
            optionally, ``topic``. Sequences have 64 bits.
        topics: The topics; empty for those that the ledger names.
        kafka: librdkafka settings; ``bootstrap.servers`` at least.
        header: The header that carries a record's sequence.
        progress: Is called now and then, by another thread.
        isolation: The isolation level of the consumers that read the topics.
        anomalies: Where to write a table of all that is wrong: a folder that does not exist. JSON lines if
            its name ends in ``.json`` or ``.jsonl``, otherwise Parquet.

    Raises:
        OutboxError: The ledger cannot be read, or has no record of a topic; or the folder exists.
        DriverError: A topic cannot be read.
        PySparkException: A task fails; see :func:`spark`.
    """
    if anomalies is not None:
        _require_absent(session, anomalies)
    counter = session.sparkContext.accumulator(0)
    with _following(lambda: counter.value, progress):
        try:
            recorded, named = entries(session, ledger, counter.add)
            plan = plan_audits(ledger, named, topics)
            read = [(audit, topic) for audit, (each, _) in enumerate(plan) for topic in each]
            wanted = [
                piece
                for place, (audit, topic) in enumerate(read)
                for piece in pieces(audit, place, topic, stretches(kafka, topic))
            ]
            read_pieces = partial(read_stretches, kafka, header=header, isolation=isolation)
            arrived = messages(session, wanted, read_pieces, counter.add)
            rows = committed(recorded, [name for _, name in plan]).unionAll(arrived)
            found = find(rows).persist()
            results = judge(found, len(plan), ledger)
            if anomalies is not None:
                # A lost record has no place; its topic is known if the ledger names it.
                place = F.coalesce("topic", F.lit(None) if plan[0][1] is None else F.col("audit"))
                _write(found, F.get(F.array(*(F.lit(topic) for _, topic in read)), place), anomalies)
        finally:
            session.catalog.clearCache()
    return [Comparison(each, result) for (each, _), result in zip(plan, results, strict=True)]


def _write(found: DataFrame, topic: Any, path: str) -> None:
    wrong = found.where(F.col("finding").isin(*Defect))
    named = (F.col("finding").alias("defect"), "key", "sequence", topic.alias("topic"), "partition", "offset")
    kind = "json" if path.endswith((".json", ".jsonl")) else "parquet"
    wrong.select(*named).write.format(kind).save(path)


def _require_absent(session: SparkSession, path: str) -> None:
    """Makes sure before the work that its result can be written."""
    context = session.sparkContext
    folder = context._jvm.org.apache.hadoop.fs.Path(path)  # type: ignore[union-attr]  # noqa: SLF001 - the API of Spark has none for files
    if folder.getFileSystem(context._jsc.hadoopConfiguration()).exists(folder):  # noqa: SLF001 - as above
        raise OutboxError(f"'{path}' exists: name a new folder for the anomalies")


@contextmanager
def _following(total: Callable[[], int], progress: Progress) -> Iterator[None]:
    """Reports a total's growth while the block runs."""
    ended = Event()

    def follow() -> None:
        reported, is_last = 0, False
        while not is_last:
            is_last = ended.wait(_PROGRESS_SECONDS)
            now = total()
            progress(now - reported)
            reported = now

    follower = Thread(target=follow, name="audit-progress", daemon=True)
    follower.start()
    try:
        yield
    finally:
        ended.set()
        follower.join()
