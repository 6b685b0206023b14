"""The sink ``outbox``: what Spark computes becomes rows of an outbox, once."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from outbox_api import DriverError, Record
from pyspark_outbox.options import read_stash_options
from pyspark_outbox.stash import Rows, StreamStash
from pyspark_outbox_kafka.columns import Columns

from .sessions import session
from .sink_trial import Outbox, created

pytestmark = pytest.mark.spark

ROWS = 100
WAIT_SECONDS = 120


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with session("stash") as made:
        yield made


class Stream:
    """Numbers in files, of which a batch takes one, and the query that stashes them."""

    def __init__(self, spark: Any, outbox: Outbox, folder: Path) -> None:
        self.spark, self.outbox = spark, outbox
        self.source, self.checkpoint = folder / "source", folder / "checkpoint"
        self.fed = 0

    def feed(self) -> None:
        numbers = self.spark.range(self.fed, self.fed + ROWS, 1, 1)
        numbers.write.mode("append").json(str(self.source))
        self.fed += ROWS

    def rows(self, *columns: str, tasks: int = 2) -> Any:
        read = self.spark.readStream.schema("id BIGINT").option("maxFilesPerTrigger", 1)
        chosen = columns or ("'orders' AS topic", "concat('k', id % 7) AS key", "string(id) AS value")
        return read.json(str(self.source)).selectExpr(*chosen).repartition(tasks)

    def start(self, rows: Any = None, **options: str) -> Any:
        writer = (self.rows() if rows is None else rows).writeStream.format("outbox")
        writer = writer.options(**self.outbox.options, **options)
        return writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()

    def run(self, rows: Any = None, **options: str) -> None:
        assert self.start(rows, **options).awaitTermination(WAIT_SECONDS)

    def fails(self, rows: Any = None, **options: str) -> str:
        with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark's own
            self.start(rows, **options).awaitTermination(WAIT_SECONDS)
        return str(raised.value)

    def forget_commit(self, batch: int) -> None:
        """Has the batch be repeated: as if Spark had been killed before it noted that it was written."""
        for path in (self.checkpoint / "commits").glob(f"*{batch}*"):
            path.unlink()

    def stashed(self) -> list[tuple[Any, ...]]:
        with (
            closing(self.outbox.dialect.stash_connection()) as connection,
            closing(connection.cursor()) as cursor,
        ):
            cursor.execute("SELECT kafka_topic, kafka_key, kafka_value FROM outbox ORDER BY id")
            return list(cursor.fetchall())


def numbers(rows: Sequence[tuple[Any, ...]]) -> list[int]:
    return sorted(int(value) for _, _, value in rows)


@pytest.fixture
def stream(spark: Any, postgres_dsn: str, tmp_path: Path) -> Stream:
    stream = Stream(spark, created(postgres_dsn), tmp_path)
    stream.feed()
    return stream


def test_each_row_is_stashed_once_whatever_is_repeated_and_however_it_is_divided(stream: Stream) -> None:
    stream.run()
    assert numbers(stream.stashed()) == list(range(ROWS))
    stream.forget_commit(0)
    stream.feed()
    stream.run(stream.rows(tasks=3))
    assert numbers(stream.stashed()) == list(range(2 * ROWS))
    assert {(topic, key) for topic, key, _ in stream.stashed()} == {("orders", f"k{n}") for n in range(7)}


def test_values_that_differ_when_a_batch_is_repeated_are_not_stashed_again(stream: Stream) -> None:
    rows = "'orders' AS topic", "concat('k', id % 7) AS key", "uuid() AS value"
    stream.run(stream.rows(*rows))
    stream.forget_commit(0)
    stream.run(stream.rows(*rows))
    assert len(stream.stashed()) == ROWS


def test_a_copy_of_a_query_is_refused_once_it_has_other_rows(stream: Stream, tmp_path: Path) -> None:
    stream.run()
    copy = tmp_path / "copy"
    shutil.copytree(stream.checkpoint, copy)
    stream.feed()
    stream.run()
    stream.checkpoint = copy
    stream.feed()
    said = stream.fails(stream.rows("'orders' AS topic", "concat('other', id) AS key", "string(id) AS value"))
    assert "another copy of the query runs" in said
    assert numbers(stream.stashed()) == list(range(2 * ROWS))


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        (("string(id) AS value",), {}, "neither the option 'topic' nor a column"),
        (("string(id) AS value", "id AS row"), {"topic": "orders"}, "no column 'row'"),
        (("string(id) AS value", "1 AS partition"), {"topic": "orders"}, "a record that is stashed has none"),
        (
            ("string(id) AS value",),
            {"topic": "orders", "values": "false"},
            "the Spark sink has no option 'values'",
        ),
        (("unhex('FF') AS value",), {"topic": "orders"}, "dialect.valueType"),
        (("string(id) AS value",), {"topic": "orders", "inboxTable": "absent"}, "absent"),
    ],
)
def test_what_cannot_be_stashed_is_refused(
    stream: Stream, columns: tuple[str, ...], options: dict[str, str], said: str
) -> None:
    assert said in stream.fails(stream.rows(*columns), **options)
    assert stream.stashed() == []


def test_a_batch_query_is_stashed_as_a_whole(stream: Stream) -> None:
    frame = stream.spark.range(10).selectExpr(
        "string(id) AS value",
        "array(named_struct('key', 'source', 'value', encode('spark', 'UTF-8'))) AS headers",
    )
    writer = frame.write.format("outbox").options(**stream.outbox.options, topic="orders")
    writer.mode("append").save()
    assert numbers(stream.stashed()) == list(range(10))
    with pytest.raises(Exception, match="only added to"):
        writer.mode("overwrite").save()
    read = stream.spark.read.format("outbox").options(**stream.outbox.options).load()
    assert [row.headers[0].asDict() for row in read.limit(1).collect()] == [
        {"key": "source", "value": bytearray(b"spark")}
    ]


def test_a_connection_that_is_lost_is_made_anew_and_the_batch_is_there_once(stream: Stream) -> None:
    writer = StreamStash(read_stash_options(stream.outbox.options), Columns({}, None))
    part = Rows("a-query", [Record("orders", "key", "value")])
    waiting = """
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE wait_event_type = 'Lock' AND datname = current_database()
    """
    dsn = stream.outbox.data_source
    with (
        ThreadPoolExecutor() as pool,
        psycopg.connect(dsn, autocommit=True) as looking,
        psycopg.connect(dsn) as held,
    ):
        held.execute("LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE")
        written = pool.submit(writer.commit, [part], 0)
        while not looking.execute(waiting).fetchall():
            time.sleep(0.05)
        held.commit()
        written.result(WAIT_SECONDS)
    writer.commit([part], 0)
    assert len(stream.stashed()) == 1


def test_an_error_of_the_database_quotes_no_value(stream: Stream) -> None:
    stream.outbox.execute("ALTER TABLE outbox ADD CHECK (kafka_value <> 'confidential')")
    writer = StreamStash(read_stash_options(stream.outbox.options), Columns({}, None))
    with pytest.raises(DriverError, match="cannot stash a batch, and note it in outbox_inbox") as raised:
        writer.commit([Rows("a-query", [Record("orders", "key", "confidential")])], 0)
    assert "confidential" not in str(raised.value)
    assert stream.stashed() == []
