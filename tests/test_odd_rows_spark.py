"""Odd rows, as Spark reads them: each is delivered or parked, and neither a batch query nor a stream ends."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from outbox_spark.application import Application

from .databases import Database, MySql, Postgres, Sqlite
from .harvesters import Measure, outbox
from .odd_rows import INTAKE, OddRows, Writer, create_source, permit_nulls
from .odd_trial import waiting

pytestmark = [pytest.mark.spark, pytest.mark.timeout(500)]

ODD = 600
SOUND = 300
WAIT_SECONDS = 300


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - not without Arrow

    settings = {"spark.sql.shuffle.partitions": "2", "spark.python.authenticate.socketTimeout": "120s"}
    application = Application("odd", "local[2]", settings)
    yield SparkSession(application.context)
    SparkSession._instantiatedSession = None
    application.stop()


@pytest.fixture(
    params=[
        pytest.param("sqlite", marks=pytest.mark.slow),
        pytest.param("postgres", marks=pytest.mark.slow),
        pytest.param("mysql", marks=pytest.mark.slow),
        pytest.param("mariadb", marks=pytest.mark.slow),
    ]
)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        made: Database = Sqlite(str(tmp_path / "shop.db"))
        (tmp_path / "shop.db").touch()
    else:
        kind = Postgres if request.param == "postgres" else MySql
        made = kind(request.getfixturevalue(f"{request.param}_dsn"))
    yield made
    made.fence.close()


def finishes(query: Any) -> bool:
    """Runs a query to its end, again where a busy machine has not started its Python within Spark's 10 s."""
    for _ in range(5):
        try:
            return bool(query.start().awaitTermination(WAIT_SECONDS))
        except Exception as error:
            if "failed to connect back" not in str(error):
                raise
    return False


def test_odd_rows_end_no_query(spark: Any, database: Database, tmp_path: Path, measure: Measure) -> None:
    dialect = {"driver": database.driver, "intake": INTAKE}
    settings = tmp_path / "outbox.yaml"
    settings.write_text(json.dumps({"harvest": {"dialect": dialect, "dataSource": database.dsn}}))
    create_source(database)
    outbox(settings, "init")
    permit_nulls(database)
    seed = random.randrange(10**6)
    with closing(Writer(database)) as writer:
        writer.write(list(OddRows(database.driver, "orders", random.Random(seed)).rows(ODD)))
        sound = [
            {"kafka_topic": "orders", "kafka_key": f"sound {n % 9}", "kafka_value": f"s{n}"}
            for n in range(SOUND)
        ]
        writer.write(sound)
    measure(f"odd rows that the database took, seed {seed}", len(writer.written) - SOUND)
    options = {"config": str(settings), "maxRecordsPerTrigger": "200"}

    batch = spark.read.format("outbox").options(**options).load()
    assert batch.count() == len(writer.written), seed
    assert len(batch.collect()) == len(writer.written), seed

    stream = spark.readStream.format("outbox").options(**options).load()
    seen = list[int]()

    def sink(frame: Any, number: int) -> None:
        seen.append(len(frame.collect()))  # what Python cannot hold would end the stream
        frame.write.mode("overwrite").parquet(str(tmp_path / "out" / f"batch={number}"))

    query = stream.writeStream.foreachBatch(sink).trigger(availableNow=True)
    assert finishes(query.option("checkpointLocation", str(tmp_path / "checkpoint")))
    assert not waiting(database), seed
    rows = pq.read_table(
        tmp_path / "out", coerce_int96_timestamp_unit="us"
    ).to_pylist()  # nanoseconds end in 2262
    left = database.fetch("SELECT id FROM outbox")
    assert len({row["id"] for row in rows}) == len(rows) == sum(seen)
    assert len(rows) + len(left) == len(writer.written), seed
    values = [row["value"] for row in rows if row["key"].startswith("sound ")]
    assert sorted(values) == sorted(row["kafka_value"].encode() for row in sound), seed
    letters = database.fetch("SELECT id FROM outbox_dead_letters")
    assert letters
    measure(f"rows parked or behind a parked one, seed {seed}", len(left))
    frame = spark.read.format("outbox").options(**options, of="dead-letters").load()
    assert len(frame.collect()) == len(letters)
