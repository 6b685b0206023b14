"""Rows that no stasher writes, as the source of Spark reads them; without a JVM."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from outbox_api import MarkedRecord
from outbox_api.application.testing import Stashed
from outbox_sqlite.dialect import SqliteDialect, SqliteOptions
from pyspark.sql.datasource import InputPartition
from pyspark_outbox.columns import batches
from pyspark_outbox.parts import Positioned
from pyspark_outbox.snapshot import OutboxSnapshot

YEAR_294276 = 9_224_286_307_200.0


@pytest.mark.parametrize("moment", [YEAR_294276, -YEAR_294276])
def test_a_time_that_spark_cannot_hold_is_null(moment: float) -> None:
    odd = MarkedRecord(1, "orders", "k", "v", timestamp_ms=round(moment * 1000), created=moment)
    sound = MarkedRecord(2, "orders", "k", "v", timestamp_ms=1000, created=1.0)
    (batch,) = batches([Positioned(1, odd), Positioned(2, sound)], values=True)
    rows = batch.select(["id", "timestamp", "create_time"]).to_pylist()
    assert [(row["timestamp"] is None, row["create_time"] is None) for row in rows] == [
        (True, True),
        (False, False),
    ]


@pytest.mark.parametrize("created", [float("inf"), float("-inf"), float("nan"), -62_135_596_800.0])
def test_a_time_that_is_none_or_that_python_cannot_move_to_a_zone_is_null(created: float) -> None:
    (batch,) = batches([Positioned(1, MarkedRecord(1, "orders", "k", "v", created=created))], values=True)
    assert batch.select(["create_time"]).to_pylist() == [{"create_time": None}]


def test_a_batch_query_and_the_tests_double_read_ids_below_one(tmp_path: Path) -> None:
    file = str(tmp_path / "shop.db")
    dialect = SqliteDialect(SqliteOptions(data_source=file))
    dialect.create()
    connection = dialect.stash_connection()
    for number in (-7, 0, 1):
        connection.execute(
            "INSERT INTO outbox (id, kafka_topic, kafka_key) VALUES (?, 'orders', ?)", (number, str(number))
        )
    connection.commit()
    options: Any = SimpleNamespace(
        settings=SimpleNamespace(dialect=SimpleNamespace(create=lambda: dialect)), values=True
    )
    read = OutboxSnapshot(options).read(InputPartition(0))
    assert [row["id"] for batch in read for row in batch.to_pylist()] == [-7, 0, 1]
    assert [record.key for record in Stashed(connection, earlier=True)] == ["-7", "0", "1"]
    connection.close()
