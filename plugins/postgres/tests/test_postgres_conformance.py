"""PostgreSQL does what every dialect must."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

import psycopg
import pytest
from outbox_servers.services import Postgres
from outbox_testkit.conformance import DailyConformance, DialectConformance, OutboxUnderTest
from outbox_testkit.conformance.base import Conformance
from outbox_testkit.conformance.concurrency import ConcurrencyConformance
from outbox_testkit.conformance.keeping import KeepingConformance
from outbox_testkit.conformance.marking import MarkConformance
from outbox_testkit.conformance.simulation import SimulationConformance


@pytest.fixture(scope="module")
def database(postgres_server: Postgres) -> Iterator[str]:
    """A database for all of these tests: a schema is made a hundred times as fast."""
    name = f"conformance_{uuid4().hex}"
    yield postgres_server.create_database(name)
    postgres_server.drop_database(name)


@pytest.fixture
def outbox(database: str) -> OutboxUnderTest:
    schema = f"s{uuid4().hex}"
    with psycopg.connect(database) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
    options = {"data_source": database, "table": f"{schema}.outbox"}
    return OutboxUnderTest(
        "postgres",
        options,
        bytes_values={"value_type": "bytea"},
        restart=["TRUNCATE TABLE {table} RESTART IDENTITY"],
        lease_ahead="SELECT setval('{table}_lease', last_value + 3600000) FROM {table}_lease",
    )


class TestConcurrentWriters(Conformance):
    """What SQLite, whose suite runs at each change, cannot show: one writes at a time there."""

    test_late_commits_are_found_at_the_head_and_rollbacks_never = (
        MarkConformance.test_late_commits_are_found_at_the_head_and_rollbacks_never
    )


@pytest.mark.slow
class TestPostgres(DialectConformance):
    """All the rest."""

    test_late_commits_are_found_at_the_head_and_rollbacks_never = None  # type: ignore[assignment]  # see above


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
class TestMarksThatSkipWhatIsSettled(ConcurrencyConformance, SimulationConformance):
    """What is a matter of the moment, with marks that look at the head as seldom as they may."""


@pytest.mark.slow
class TestByDay(DailyConformance, KeepingConformance):
    """In partitions."""

    @pytest.fixture
    def outbox(self, outbox: OutboxUnderTest) -> OutboxUnderTest:
        return replace(outbox, options={**outbox.options, "by_day": True})
