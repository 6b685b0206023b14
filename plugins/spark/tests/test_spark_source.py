"""An outbox as a stream of Spark: nothing is lost or repeated, and order within keys is kept."""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen
from uuid import uuid4

import pytest
from outbox_api import Poison, Record, Stasher
from outbox_core.config import configure, load
from outbox_core.operations import fence
from outbox_core.operations.journalled import Operator
from pyspark_outbox.metrics import OutboxListener

from .sessions import session, started
from .sink_trial import KEYS, Outbox

pytestmark = pytest.mark.spark

WAIT_SECONDS = 120


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with session("source") as made:
        yield made


@pytest.fixture
def sqlite_outbox(tmp_path: Path) -> Outbox:
    return created("sqlite", str(tmp_path / "shop.db"))


@pytest.fixture(params=["postgres", pytest.param("sqlite", marks=pytest.mark.slow)])
def outbox(request: pytest.FixtureRequest) -> Outbox:
    if request.param == "sqlite":
        return request.getfixturevalue("sqlite_outbox")  # type: ignore[no-any-return]
    return created("postgres", request.getfixturevalue("postgres_dsn"))


def created(driver: str, data_source: str) -> Outbox:
    outbox = Outbox(driver, data_source)
    outbox.dialect.create()
    return outbox


def source(spark: Any, options: Mapping[str, str], **more: str) -> Any:
    return spark.readStream.format("outbox").options(**{**options, **more}).load()


def rows_of(spark: Any, path: Path) -> list[Any]:
    """Returns what was delivered, in the order of positions."""
    return sorted(spark.read.parquet(str(path)).collect(), key=lambda row: row.position)


def assert_once_in_order(rows: Sequence[Any], numbers: Sequence[int]) -> None:
    assert sorted(int(row.value) for row in rows) == sorted(numbers)
    assert len({row.position for row in rows}) == len(rows)
    latest: dict[str, int] = {}
    for row in rows:
        number = int(row.value)
        assert row.key == f"k{number % KEYS}"
        assert latest.get(row.key, -1) < number
        latest[row.key] = number


def end_of(query: Any) -> str:
    """Returns with which words a query ends."""
    with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark's own
        query.awaitTermination(WAIT_SECONDS)
    return str(raised.value)


def assert_ends(query: Any, words: str) -> None:
    ended = end_of(query)
    assert words in ended, ended  # whole, which pytest would cut


def to_parquet(frame: Any, folder: Path, **trigger: Any) -> Any:
    writer = frame.writeStream.format("parquet").option("path", str(folder / "out"))
    return started(writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(**trigger))


def to_folders(folder: Path, fails: Callable[[int], bool]) -> Callable[[Any, int], None]:
    """Returns a sink that is idempotent by the batch's number, and fails after it has written."""

    def write(frame: Any, batch: int) -> None:
        frame.write.mode("overwrite").parquet(str(folder / "out" / f"batch={batch}"))
        if fails(batch):
            raise OSError("the sink is gone")

    return write


def by_batch(frame: Any, folder: Path, fails: Callable[[int], bool] = lambda _: False) -> Any:
    writer = frame.writeStream.foreachBatch(to_folders(folder, fails)).trigger(availableNow=True)
    return started(writer.option("checkpointLocation", str(folder / "checkpoint")))


def until(condition: Callable[[], bool]) -> None:
    ready = threading.Event()
    for _ in range(WAIT_SECONDS * 10):
        if condition():
            return
        ready.wait(0.1)
    raise TimeoutError


@contextmanager
def writing(outbox: Outbox, begin: int) -> Iterator[list[int]]:
    """Stashes on, a hundred records at a time, until the end of the block."""
    written, ended = list[int](), threading.Event()

    def write() -> None:
        while not ended.wait(0.05):
            numbers = list(range(begin + len(written), begin + len(written) + 100))
            outbox.stash(numbers)
            written.extend(numbers)

    thread = threading.Thread(target=write)
    thread.start()
    yield written
    ended.set()
    thread.join()


@pytest.mark.slow
def test_a_query_that_is_stopped_goes_on(spark: Any, outbox: Outbox, tmp_path: Path) -> None:
    outbox.stash(range(2500))
    query = to_parquet(
        source(spark, outbox.options, maxRecordsPerTrigger="300"), tmp_path, processingTime="0 seconds"
    )
    until(lambda: len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))) > 1)
    query.stop()
    outbox.stash(range(2500, 5000))
    query = to_parquet(
        source(spark, outbox.options, maxRecordsPerTrigger="1500"), tmp_path, availableNow=True
    )
    assert query.awaitTermination(WAIT_SECONDS)
    rows = rows_of(spark, tmp_path / "out")
    assert_once_in_order(rows, range(5000))
    assert outbox.waiting() == 0


@pytest.mark.slow
def test_a_batch_that_failed_is_read_again(spark: Any, outbox: Outbox, tmp_path: Path) -> None:
    outbox.stash(range(3000))
    options = {**outbox.options, "maxRecordsPerTrigger": "1000"}
    assert_ends(by_batch(source(spark, options), tmp_path, lambda batch: batch == 1), "the sink is gone")
    torn = tmp_path / "out" / "batch=1"
    first = rows_of(spark, torn)
    assert outbox.noted()
    assert outbox.waiting() == 2000
    outbox.stash(range(3000, 5000))
    query = by_batch(source(spark, {**options, "partitions": "3"}), tmp_path)
    assert query.awaitTermination(WAIT_SECONDS)
    strip = [(row.id, row.position, row.key, row.value) for row in first]
    assert [(row.id, row.position, row.key, row.value) for row in rows_of(spark, torn)] == strip
    assert_once_in_order(rows_of(spark, tmp_path / "out"), range(5000))
    assert outbox.waiting() == 0


@pytest.mark.slow
def test_available_now_ends_while_writers_go_on(spark: Any, postgres_dsn: str, tmp_path: Path) -> None:
    outbox = created("postgres", postgres_dsn)
    outbox.stash(range(1000))
    with writing(outbox, 1000) as written:
        query = to_parquet(
            source(spark, outbox.options, maxRecordsPerTrigger="400"), tmp_path, availableNow=True
        )
        assert query.awaitTermination(WAIT_SECONDS)
    assert '"waiting": ' in query.recentProgress[0].sources[0].latestOffset
    rows = rows_of(spark, tmp_path / "out")
    assert 1000 <= len(rows) < 1000 + len(written)
    assert outbox.waiting() == 1000 + len(written) - len(rows)  # also the last batch is deleted
    assert to_parquet(source(spark, outbox.options), tmp_path, availableNow=True).awaitTermination(
        WAIT_SECONDS
    )
    assert_once_in_order(rows_of(spark, tmp_path / "out"), range(1000 + len(written)))


@pytest.mark.slow
def test_a_second_start_of_a_query_fences_the_first(
    spark: Any, sqlite_outbox: Outbox, tmp_path: Path
) -> None:
    outbox = sqlite_outbox
    outbox.stash(range(100))
    first = to_parquet(source(spark, outbox.options, name="one"), tmp_path, processingTime="0 seconds")
    until(lambda: outbox.waiting() == 0)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "2" / "checkpoint")
    (tmp_path / "2" / "checkpoint" / ".metadata.crc").unlink()
    # With the same id, the session would stop the first.
    (tmp_path / "2" / "checkpoint" / "metadata").write_text(json.dumps({"id": str(uuid4())}))
    second = by_batch(source(spark, outbox.options, name="two"), tmp_path / "2")
    assert second.awaitTermination(WAIT_SECONDS)
    ended = end_of(first)
    assert (
        "the query 'Spark query one' reads the outbox outbox no longer: 'Spark query two' has raised" in ended
    )


@pytest.mark.slow
def test_a_new_checkpoint_repeats_nothing_unasked(spark: Any, sqlite_outbox: Outbox, tmp_path: Path) -> None:
    sqlite_outbox.stash(range(100))
    end_of(by_batch(source(spark, sqlite_outbox.options), tmp_path / "1", lambda _: True))
    ended = end_of(by_batch(source(spark, sqlite_outbox.options), tmp_path / "2"))
    assert "was read by another query" in ended
    assert "'outbox fence forget'" in ended
    assert not (tmp_path / "2" / "out").exists()
    harvest = {"dialect": sqlite_outbox.driver, "dataSource": sqlite_outbox.data_source}
    fence.forget(configure({"harvest": harvest}).harvest, Operator("somebody", "cli"))
    assert by_batch(source(spark, sqlite_outbox.options), tmp_path / "2").awaitTermination(WAIT_SECONDS)
    assert_once_in_order(rows_of(spark, tmp_path / "2" / "out"), range(100))


@pytest.mark.slow
def test_a_checkpoint_of_another_outbox_is_refused(spark: Any, sqlite_outbox: Outbox, tmp_path: Path) -> None:
    sqlite_outbox.stash(range(10))
    assert by_batch(source(spark, sqlite_outbox.options), tmp_path).awaitTermination(WAIT_SECONDS)
    other = created("sqlite", str(tmp_path / "other.db"))
    assert_ends(by_batch(source(spark, other.options), tmp_path), "is of another outbox")


def test_a_row_that_is_no_message_parks_its_key(spark: Any, sqlite_outbox: Outbox, tmp_path: Path) -> None:
    sqlite_outbox.stash(range(2 * KEYS))
    with closing(sqlite3.connect(sqlite_outbox.data_source)) as connection, connection:
        connection.execute("UPDATE outbox SET kafka_header_keys = '[\"name\"]' WHERE id IN (1, 52)")
    assert to_parquet(source(spark, sqlite_outbox.options), tmp_path, availableNow=True).awaitTermination(
        WAIT_SECONDS
    )
    rows = rows_of(spark, tmp_path / "out")
    # The first row of k0, and the second of k1: all of k0 stay, and of k1 the second.
    assert {row.id for row in rows} == set(range(1, 101)) - {1, 51, 52}
    waiting = spark.read.format("outbox").options(**sqlite_outbox.options).load()
    assert {(row.id, row.deleted) for row in waiting.collect()} == {(1, None), (51, False), (52, None)}
    with closing(sqlite_outbox.dialect.dead_letters(read_only=True)) as letters:
        assert [letter.record.id for letter in letters.find()] == [1, 52]


@pytest.mark.slow
def test_rows_that_somebody_else_deleted_end_the_query(
    spark: Any, sqlite_outbox: Outbox, tmp_path: Path
) -> None:
    sqlite_outbox.stash(range(100))
    end_of(by_batch(source(spark, sqlite_outbox.options), tmp_path, lambda _: True))
    with closing(sqlite3.connect(sqlite_outbox.data_source)) as connection, connection:
        connection.execute("DELETE FROM outbox WHERE id IN (7, 9)")
    ended = end_of(by_batch(source(spark, sqlite_outbox.options), tmp_path))
    assert "2 of 100 rows of batch 1 are not in the outbox any more" in ended
    assert ": 7, 9; somebody else has deleted them" in ended


def test_wrong_options_are_told_before_the_first_batch(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="has no option 'outboxtabel'; did you mean 'outboxTable'"):
        source(spark, {"dialect": "sqlite"}, outboxTabel="shop")
    empty = tmp_path / "empty.db"
    empty.touch()
    frame = source(spark, {"dialect": "sqlite", "dataSource": str(empty)}, values="false")
    assert_ends(by_batch(frame, tmp_path), "there is no outbox table 'outbox'")


def test_headers_and_tombstones_arrive(spark: Any, outbox: Outbox, tmp_path: Path) -> None:
    headers = (("a", "ä"), ("a", None))
    with closing(outbox.dialect.stash_connection()) as connection:
        stasher = Stasher(dialect=outbox.driver)
        stasher.stash_many(connection, [Record("orders", "k", "v", headers), Record("orders", "k", None)])
        connection.commit()
    assert to_parquet(source(spark, outbox.options), tmp_path, availableNow=True).awaitTermination(
        WAIT_SECONDS
    )
    one, two = rows_of(spark, tmp_path / "out")
    assert [(header.key, header.value) for header in one.headers] == [("a", "ä".encode()), ("a", None)]
    assert (bytes(one.value), one.deleted, two.value, two.deleted) == (b"v", False, None, True)
    assert one.create_time is not None
    assert one.position + 1 == two.position


def test_a_batch_query_reads_what_waits_and_claims_nothing(spark: Any, outbox: Outbox) -> None:
    outbox.stash(range(2500))
    frame = spark.read.format("outbox").options(**outbox.options).load()
    assert frame.where("key = 'k7'").count() == 2500 // KEYS
    assert sorted(int(row.value) for row in frame.select("value").collect()) == list(range(2500))
    without = spark.read.format("outbox").options(**outbox.options, values="false").load()
    assert without.where("value IS NULL AND NOT deleted AND position IS NULL").count() == 2500
    with closing(outbox.dialect.watch()) as view:
        assert (view.backlog().records, view.lane_statuses()) == (2500, [])


def test_dead_letters_are_a_batch_and_no_stream(spark: Any, outbox: Outbox, tmp_path: Path) -> None:
    outbox.stash(range(10))
    with closing(outbox.dialect.connect()) as table:
        lane = table.enter(0, 1, table.bump(1, "harvester"))
        table.park(lane, None, [Poison(each, f"{each} is too large", each) for each in (3, 7)])
    with closing(outbox.dialect.dead_letters()) as letters:
        letters.skip([7])
    options = {**outbox.options, "of": "dead-letters"}
    frame = spark.read.format("outbox").options(**options).load()
    with closing(outbox.dialect.dead_letters(read_only=True)) as letters:
        expected = [(each.record.id, each.status, each.reason, each.since) for each in letters.find()]
    read = [(row.id, row.status, row.reason, row.since.astimezone()) for row in frame.collect()]
    assert read == expected
    [row] = frame.where("status = 'parked'").collect()
    assert (row.topic, row.key, bytes(row.value), row.attempts) == ("orders", "k2", b"2", 3)
    assert (row.deleted, row.position, row.create_time, row.headers) == (False, None, None, [])
    [row] = spark.read.format("outbox").options(**options, values="false").load().where("id = 3").collect()
    assert (row.value, row.deleted) == (None, False)
    assert_ends(by_batch(source(spark, options), tmp_path), "a stream reads what waits in an outbox")


def test_what_a_query_has_delivered_is_kept_and_read_as_a_batch(
    spark: Any, outbox: Outbox, tmp_path: Path
) -> None:
    file = tmp_path / "outbox.yaml"
    dialect = {"driver": outbox.driver, "keep": {"for": "1h"}}
    file.write_text(json.dumps({"harvest": {"dataSource": outbox.data_source, "dialect": dialect}}))
    load(file).harvest.dialect.create().create()
    options = {"config": str(file)}
    reader = spark.read.format("outbox").options(**options, of="kept", partitions="3")
    assert reader.load().count() == 0
    outbox.stash(range(2500))
    for _ in range(2):  # the second deletes what the first has delivered
        to_parquet(source(spark, options), tmp_path, availableNow=True).awaitTermination(WAIT_SECONDS)
    assert outbox.waiting() == 0
    assert_once_in_order(rows_of(spark, tmp_path / "out"), range(2500))
    kept = reader.load()
    assert kept.rdd.getNumPartitions() == 3
    rows = sorted(kept.collect(), key=lambda row: row.position)
    assert_once_in_order(rows, range(2500))
    assert {(row.has_value, row.has_headers, row.deleted) for row in rows} == {(True, True, False)}
    assert not any(row.superseded for row in rows)
    assert all(row.create_time <= row.delivered_at and row.token for row in rows)
    kept_stream = by_batch(source(spark, {**options, "of": "kept"}), tmp_path)
    assert_ends(kept_stream, "read what is kept as a batch")


def scraped(port: int | None) -> dict[str, float]:
    """Returns the series that Prometheus would find, without their help."""
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


@pytest.mark.slow
def test_a_listener_tells_what_a_query_does(spark: Any, sqlite_outbox: Outbox, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "200")
    sqlite_outbox.stash(range(1000))
    with closing(sqlite3.connect(sqlite_outbox.data_source)) as connection, connection:
        connection.execute("UPDATE outbox SET kafka_header_keys = '[\"name\"]' WHERE id = 1")  # parks k0
    outbox, lane = '{outbox_name="outbox"}', '{outbox_lane="0",outbox_name="outbox"}'
    step_ = '{{outbox_lane="0",outbox_name="outbox",outbox_step="{}"}}'.format
    with closing(OutboxListener(spark, port=0)) as listener:
        spark.streams.addListener(listener)
        frame = source(spark, sqlite_outbox.options, maxRecordsPerTrigger="700")
        query = to_parquet(frame, tmp_path, processingTime="0 seconds")
        until(lambda: scraped(listener.port).get(f"outbox_backlog{outbox}") == 1000 // KEYS)  # now it is idle
        found = scraped(listener.port)
        batches = [each for each in query.recentProgress if each.numInputRows]
        assert '"waiting": 20,' in query.lastProgress.sources[0].latestOffset
        assert found[f"outbox_backlog_age_seconds{outbox}"] == 0
        assert found[f"outbox_leader{outbox}"] == 1
        assert found[f"outbox_purged_total{lane}"] == sum(each.numInputRows for each in batches) == 980
        assert found[f"outbox_batch_size_count{step_('publish')}"] == len(batches) == 2
        for name, step in (("addBatch", "publish"), ("latestOffset", "advance")):
            seconds = sum(each.durationMs[name] for each in batches) / 1000
            assert found[f"outbox_step_duration_seconds_sum{step_(step)}"] == pytest.approx(seconds)
        query.stop()
        until(lambda: scraped(listener.port)[f"outbox_leader{outbox}"] == 0)
        assert f"outbox_backlog{outbox}" not in scraped(listener.port)
        spark.streams.removeListener(listener)
