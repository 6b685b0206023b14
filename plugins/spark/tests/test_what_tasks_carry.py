"""What Spark sends to executors for a stream: nothing of the database."""

from __future__ import annotations

import pytest
from pyspark.cloudpickle import dumps
from pyspark.sql.types import StructType
from pyspark_outbox.source import DefaultSource

SECRET = "GREYHERON"
OPTIONS = {"dataSource": "host=db dbname=shop user=lakehouse", "password": "${SHOP_PASSWORD}"}


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> DefaultSource:
    monkeypatch.setenv("SHOP_PASSWORD", SECRET)
    return DefaultSource(dict(OPTIONS))


def test_a_task_of_the_source_knows_neither_the_database_nor_this_package(source: DefaultSource) -> None:
    reader = source.streamReader(StructType())
    sent = dumps((reader, source))
    for word in (SECRET, "lakehouse", "outbox_api", "outbox_postgres"):
        assert word.encode() not in sent


def test_a_task_of_the_sink_does_not_know_the_database(source: DefaultSource) -> None:
    schema = StructType().add("topic", "string").add("key", "string").add("value", "string")
    sent = dumps(source.streamWriter(schema, overwrite=False))
    for word in (SECRET, "lakehouse", "outbox_postgres"):
        assert word.encode() not in sent
