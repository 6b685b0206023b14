"""The sink ``outbox-kafka`` under Spark: what a stream publishes is in Kafka once, and in order."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from .sessions import session
from .sink_kills import Trial
from .sink_tasks import consumed, messages, numbers
from .sink_trial import Count

pytestmark = pytest.mark.spark

ROWS = 100
KEYS = 7


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with session("sink") as made:
        yield made


class Pipeline:
    """Numbers in files, of which a batch takes one, and the query that publishes them."""

    def __init__(self, spark: Any, bootstrap: str, topic: str, folder: Path) -> None:
        self.spark, self.bootstrap, self.topic = spark, bootstrap, topic
        self.source, self.checkpoint = folder / "source", folder / "checkpoint"
        self.fed = 0

    def feed(self) -> None:
        numbers = self.spark.range(self.fed, self.fed + ROWS, 1, 1)
        numbers.write.mode("append").json(str(self.source))
        self.fed += ROWS

    def rows(self, value: str = "string(id)", tasks: int = 2) -> Any:
        read = self.spark.readStream.schema("id BIGINT").option("maxFilesPerTrigger", 1)
        keyed = read.json(str(self.source)).selectExpr(
            f"concat('k', id % {KEYS}) AS key", f"{value} AS value"
        )
        return keyed.repartition(tasks, "key")

    def start(self, rows: Any = None, **options: str) -> Any:
        writer = (self.rows() if rows is None else rows).writeStream.format("outbox-kafka")
        writer = writer.option("kafka.bootstrap.servers", self.bootstrap).option("topic", self.topic)
        writer = writer.option("checkpointLocation", str(self.checkpoint)).options(**options)
        return writer.trigger(availableNow=True).start()

    def run(self, rows: Any = None, **options: str) -> None:
        assert self.start(rows, **options).awaitTermination(120)

    def fails(self, rows: Any = None, **options: str) -> str:
        """Returns with which words the query ends."""
        with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark's own
            self.start(rows, **options).awaitTermination(120)
        return str(raised.value)

    def forget_commit(self) -> None:
        """Leaves what a crash leaves between the sink and the commit log."""
        newest = max((self.checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        newest.unlink()
        newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)

    def assert_once(self) -> None:
        """Makes sure that all numbers are there once, those of a key in their order."""
        latest: dict[bytes, int] = {}
        for key, value in messages(self.bootstrap, self.topic):
            assert key is not None
            assert int(value or b"") > latest.get(key, -1)
            latest[key] = int(value or b"")
        assert sorted(numbers(self.bootstrap, self.topic)) == list(range(self.fed))


@pytest.fixture
def pipeline(spark: Any, kafka_bootstrap: str, topic: str, tmp_path: Path) -> Pipeline:
    made = Pipeline(spark, kafka_bootstrap, topic, tmp_path)
    made.feed()
    return made


def test_a_stream_is_published_once_also_if_batches_are_repeated(pipeline: Pipeline) -> None:
    pipeline.feed()
    pipeline.run()
    pipeline.forget_commit()
    pipeline.feed()
    pipeline.run()
    pipeline.forget_commit()
    pipeline.run(pipeline.rows(tasks=3))
    pipeline.feed()
    pipeline.run()
    pipeline.assert_once()


def test_a_batch_that_was_published_in_part_is_completed(pipeline: Pipeline, tmp_path: Path) -> None:
    held = tmp_path / "held"
    held.touch()
    begun = tmp_path / "begun"

    def hold(value: str) -> str:
        import time  # noqa: PLC0415 - in a worker

        from pyspark import TaskContext  # noqa: PLC0415 - in a worker

        context = TaskContext.get()
        while context is not None and context.partitionId() == 1 and held.exists():
            begun.touch()
            time.sleep(0.05)
        return value

    def rows() -> Any:
        from pyspark.sql.functions import udf  # noqa: PLC0415 - not without Arrow

        return pipeline.rows().withColumn("value", udf(hold, "string", useArrow=False)("value"))

    query = pipeline.start(rows())
    for _ in range(600):
        if begun.exists() and numbers(pipeline.bootstrap, pipeline.topic):
            break
        query.awaitTermination(0.1)
    part = numbers(pipeline.bootstrap, pipeline.topic)
    assert 0 < len(part) < ROWS
    query.stop()
    held.unlink()
    pipeline.feed()
    pipeline.run(rows())
    pipeline.assert_once()
    assert numbers(pipeline.bootstrap, pipeline.topic) != part


def test_a_query_that_gives_other_rows_ends_with_the_cure(pipeline: Pipeline) -> None:
    rows = pipeline.rows("string(rand())")
    pipeline.run(rows)
    before = messages(pipeline.bootstrap, pipeline.topic)
    pipeline.forget_commit()
    message = pipeline.fails(pipeline.rows("string(rand())"))
    assert "the rows of batch 0" in message
    assert "no rand()" in message
    assert messages(pipeline.bootstrap, pipeline.topic) == before


def test_an_older_copy_of_a_checkpoint_publishes_nothing(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.run()
    shutil.copytree(pipeline.checkpoint, tmp_path / "copy")
    pipeline.feed()
    pipeline.run()
    pipeline.feed()
    pipeline.run()
    pipeline.checkpoint = tmp_path / "copy"
    assert "older copy" in pipeline.fails()
    pipeline.checkpoint = tmp_path / "checkpoint"
    pipeline.run()
    pipeline.assert_once()


def test_a_new_checkpoint_needs_to_be_told(pipeline: Pipeline, tmp_path: Path) -> None:
    name = pipeline.topic
    pipeline.run(sinkName=name)
    pipeline.checkpoint = tmp_path / "another"
    message = pipeline.fails(sinkName=name)
    former = message.split("set replacesQuery to ")[1].split()[0].strip()
    pipeline.run(sinkName=name, replacesQuery=former)
    found = numbers(pipeline.bootstrap, pipeline.topic)
    assert sorted(found) == sorted([*range(ROWS), *range(ROWS)])


def test_all_columns_arrive(spark: Any, kafka_bootstrap: str, topic: str) -> None:
    row = (
        "'{topic}' AS topic, X'00ff' AS key, 'ä' AS value, 0 AS partition, "
        "timestamp_millis(1700000000123) AS timestamp, "
        "array(named_struct('key', 'h', 'value', X'01'), named_struct('key', 'h', 'value', NULL)) "
        "AS headers"
    )
    writer = spark.sql(f"SELECT {row.format(topic=topic)}").write.format("outbox-kafka").mode("append")
    writer.option("kafka.bootstrap.servers", kafka_bootstrap).save()
    [message] = consumed(kafka_bootstrap, topic)
    assert (message.key(), message.value()) == (b"\0\xff", "ä".encode())
    assert message.headers() == [("h", b"\1"), ("h", None)]
    assert (message.partition(), message.timestamp()[1]) == (0, 1_700_000_000_123)
    assert datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC).year == 2023


def test_a_batch_query_with_a_name_publishes_once(spark: Any, kafka_bootstrap: str, topic: str) -> None:
    def write(rows: int, **options: str) -> None:
        writer = spark.range(0, rows, 1, 2).selectExpr("string(id) AS value").write.format("outbox-kafka")
        writer = writer.option("kafka.bootstrap.servers", kafka_bootstrap).option("topic", topic)
        writer.options(**options).mode("append").save()

    for _ in range(2):
        write(10, sinkName=topic)
    assert sorted(numbers(kafka_bootstrap, topic)) == list(range(10))
    with pytest.raises(Exception, match="not those that were published"):
        write(11, sinkName=topic)
    for _ in range(2):
        write(10)
    assert sorted(numbers(kafka_bootstrap, topic)) == sorted([*range(10)] * 3)


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("string(id) AS val", {}, "no column 'val'"),
        ("id AS value", {}, "'value' is BIGINT, and must be STRING or BINARY"),
        ("string(id) AS key", {}, "'value' is missing"),
        ("string(id) AS value", {"sinkNmae": "x"}, "no option 'sinknmae'"),
        ("string(id) AS value", {"kafka.linger.msec": "5"}, "unknown Kafka setting 'linger.msec'"),
        ("string(id) AS value", {"kafka.transactional.id": "x"}, "'kafka.transactional.id' must not be set"),
    ],
)
def test_what_cannot_be_published_is_refused(
    pipeline: Pipeline, columns: str, options: dict[str, str], words: str
) -> None:
    rows = pipeline.spark.readStream.schema("id BIGINT").json(str(pipeline.source)).selectExpr(columns)
    assert words in pipeline.fails(rows, **options)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_nothing_is_lost_or_repeated_however_often_spark_is_killed(
    kafka_bootstrap: str, tmp_path: Path
) -> None:
    trial = Trial(kafka_bootstrap, tmp_path, 20_000, kills=4)
    assert trial.run() == Count(lost=0, twice=0, out_of_order=0)
