"""The short form of ``python -m tests.odd_trial``: odd rows are delivered or parked, and stop no other."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from outbox_servers.services import Kafka

from .databases import Database, MySql, Postgres, Sqlite
from .odd_trial import DATABASES, DELIVERIES, Count, trial

ROWS = 100
AT_ONCE = 5


SLOW = dict.fromkeys(DATABASES[1:], pytest.mark.slow)


@pytest.fixture(params=["postgres", *(pytest.param(name, marks=mark) for name, mark in SLOW.items())])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """An empty database."""
    if request.param == "sqlite":
        (tmp_path / "shop.db").touch()
        made: Database = Sqlite(str(tmp_path / "shop.db"))
    else:
        kind = Postgres if request.param == "postgres" else MySql
        made = kind(request.getfixturevalue(f"{request.param}_dsn"))
    yield made
    made.fence.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("rows", ["odd", "transforms"])
@pytest.mark.parametrize("delivery", DELIVERIES)
def test_odd_rows_are_delivered_or_parked_and_end_nothing(  # noqa: PLR0917
    tmp_path: Path, kafka_broker: Kafka, database: Database, topic: str, delivery: str, rows: str
) -> None:
    count = Count(database.driver, delivery, rows, random.randrange(10**6))
    trial(tmp_path, kafka_broker, database, count, ROWS, AT_ONCE, topic)
    assert not count.faults, count
    assert count.written > ROWS / 2
