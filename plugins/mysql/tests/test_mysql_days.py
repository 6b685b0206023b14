"""An outbox in partitions by day in MySQL and MariaDB: rights, locks, ids, and the last partition."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from time import monotonic
from typing import Any
from uuid import uuid4

import pymysql
import pytest
from outbox_api import DriverError, Finding, Level
from outbox_api.portable import PortableDialect
from outbox_api.portable.partitions import divided_outbox
from outbox_api.seams.kept import Tended
from outbox_mysql import MySqlDialect, MySqlOptions, partitions
from outbox_mysql.connection import open_plain
from outbox_testkit.conformance import OutboxUnderTest
from outbox_testkit.conformance.under_test import Box

from .test_mysql_retention import ask, name
from .users import User, create_harvester

pytestmark = pytest.mark.slow

DAY = timedelta(days=1)
OLD_DAYS = 30


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def box(under: OutboxUnderTest, stack: ExitStack) -> Box:
    made = Box(replace(under, options={**under.options, "by_day": True}), stack)
    made.dialect.create()
    return made


@pytest.fixture
def admin(box: Box, stack: ExitStack) -> pymysql.Connection[Any]:
    connection = stack.enter_context(closing(open_plain(box.options)))
    connection.autocommit(True)
    return connection


def today() -> date:
    return datetime.now(UTC).date()


def write(admin: pymysql.Connection[Any], box: Box, day: date, rows: int = 1) -> None:
    row = f"('{day} 12:00', 'orders', 'k', 'v')"
    columns = "create_time, kafka_topic, kafka_key, kafka_value"
    ask(admin, f"INSERT INTO {box.options.table} ({columns}) VALUES {', '.join([row] * rows)}")


def days(admin: pymysql.Connection[Any], box: Box) -> list[str]:
    return ask(
        admin,
        "SELECT partition_name FROM information_schema.partitions WHERE table_schema = DATABASE()"
        f" AND table_name = '{box.options.table}' ORDER BY partition_ordinal_position",
    )


def rewind(admin: pymysql.Connection[Any], box: Box) -> None:
    """Makes the table as a leader of thirty days ago has left it."""
    table, old = box.options.table, today() - OLD_DAYS * DAY
    parts = [f"PARTITION {name(day)} VALUES LESS THAN ('{day + DAY}')" for day in (old, old + DAY)]
    listed = ", ".join([*parts, "PARTITION rest VALUES LESS THAN (MAXVALUE)"])
    ask(admin, f"ALTER TABLE {table} REMOVE PARTITIONING")
    ask(admin, f"ALTER TABLE {table} PARTITION BY RANGE COLUMNS (create_time) ({listed})")


def wanted() -> list[str]:
    return [*(name(today() + number * DAY) for number in range(4)), "rest"]


def findings(dialect: PortableDialect) -> list[Finding]:
    return [each for each in dialect.check() if each.subject in {"partitions", "primary key"}]


def test_a_leader_that_was_away_for_long(box: Box, admin: pymysql.Connection[Any]) -> None:
    rewind(admin, box)
    write(admin, box, today() - OLD_DAYS * DAY, 2)
    write(admin, box, today() - 20 * DAY, 3)
    write(admin, box, today(), 2)
    table = box.connect()
    assert table.tend_days() == Tended()
    assert days(admin, box) == [name(today() - OLD_DAYS * DAY), *wanted()], "an empty day has gone"
    hand = box.lead()
    assert hand.purge(*hand.ids()) == 7
    assert table.tend_days() == Tended()
    assert days(admin, box) == wanted()
    assert {each.level for each in findings(box.dialect)} == {Level.OK}


def test_a_last_partition_that_is_too_large_is_left(
    box: Box, admin: pymysql.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "COPIED", 100)
    rewind(admin, box)
    write(admin, box, today(), 101)
    assert "has more than 100 records" in box.connect().tend_days().faults[0]
    box.dialect.create()
    assert days(admin, box)[-5:] == wanted()


def test_no_id_is_given_out_again_whatever_partition_had_the_last(
    box: Box, admin: pymysql.Connection[Any]
) -> None:
    rewind(admin, box)
    table, hand = box.connect(), box.lead()
    write(admin, box, today() - OLD_DAYS * DAY)
    assert table.tend_days() == Tended(), "what makes partitions keeps the number, too"
    write(admin, box, today() - OLD_DAYS * DAY, 50)
    last = max(ids := hand.ids())
    assert hand.purge(*ids) == 51
    assert table.tend_days() == Tended()
    assert days(admin, box) == wanted()
    ask(admin, "FLUSH TABLES")
    write(admin, box, today())
    assert hand.ids() == [last + 1]


def test_who_uses_the_outbox_delays_a_drop_and_a_drop_delays_nobody_for_long(
    box: Box, admin: pymysql.Connection[Any], stack: ExitStack
) -> None:
    rewind(admin, box)
    table = box.connect()
    reader = stack.enter_context(closing(open_plain(box.options)))
    ask(reader, f"SELECT COUNT(*) FROM {box.options.table}")
    box.fill(10)
    hand = box.lead()
    ids = hand.ids()
    since = monotonic()
    with ThreadPoolExecutor(3) as pool:
        tended = pool.submit(table.tend_days)
        purged, written = pool.submit(hand.purge, *ids), pool.submit(write, admin, box, today())
        assert purged.result(10) == 10
        written.result(10)
        assert tended.result(10) == Tended()
    assert monotonic() - since < 5
    reader.rollback()
    assert table.tend_days() == Tended()
    assert days(admin, box) == wanted()
    [waits] = ask(table._session.connection, "SELECT @@SESSION.lock_wait_timeout")  # type: ignore[attr-defined]
    assert waits == box.options.lock_timeout, "as before"


def test_a_leader_that_stands_still_amid_a_drop_keeps_writers_out_for_seconds(
    box: Box, admin: pymysql.Connection[Any], stack: ExitStack
) -> None:
    rewind(admin, box)
    short: MySqlOptions = replace(box.options, idle_timeout=1.0)
    session = stack.enter_context(closing(MySqlDialect(short).session()))
    parts, divided = session.idiom.partitions, divided_outbox(box.dialect.names(session).outbox)
    assert parts
    since = monotonic()
    with ThreadPoolExecutor(1) as pool, suppress(DriverError), session.transaction("stand still"):
        for statement in (parts.brief, *parts.drop(divided, today() - OLD_DAYS * DAY)[:1]):
            session.execute_ddl(statement)
        written = pool.submit(write, admin, box, today())
        wait([written], 20)
        assert written.done(), "the server has ended the session that stood still"
        assert monotonic() - since > short.idle_timeout / 2, "which had kept writers out"


@pytest.fixture
def harvester(box: Box, admin: pymysql.Connection[Any], stack: ExitStack) -> tuple[User, MySqlDialect]:
    return create_harvester(box, admin, stack)


def test_without_the_rights_nothing_stops_and_check_says_what_to_grant(
    box: Box, admin: pymysql.Connection[Any], harvester: tuple[User, MySqlDialect]
) -> None:
    user, dialect = harvester
    rewind(admin, box)
    write(admin, box, today() - OLD_DAYS * DAY, 2)
    with closing(dialect.connect()) as table:
        tended = table.tend_days()
        assert "may not make and remove partitions" in tended.faults[0]
        assert table.tend_days() == tended, "in the same words each time"
        warned = findings(dialect)
        assert [each.level for each in warned] == [Level.WARNING] * 2
        grants, _, _ = warned[0].cure.partition("; or let")
        listed = grants.split("; ")
        assert len(listed) == 2
        for grant in listed:
            ask(admin, grant.replace("this user", user.name))
    with closing(dialect.connect()) as table:  # a session keeps the rights to its database
        assert table.tend_days() == Tended()
        assert days(admin, box) == [name(today() - OLD_DAYS * DAY), *wanted()]
        assert {each.level for each in findings(dialect)} == {Level.OK}
        token = table.bump(1, "test")
        assert len(table.mark(table.enter(0, 1, token), uuid4(), 10)) == 2


def test_the_statements_of_check_are_all_that_is_due(
    box: Box, admin: pymysql.Connection[Any], harvester: tuple[User, MySqlDialect]
) -> None:
    rewind(admin, box)
    write(admin, box, today() - OLD_DAYS * DAY, 2)
    _, dialect = harvester
    cure = next(each.cure for each in findings(dialect) if each.level is Level.WARNING)
    _, _, due = cure.partition("due now: ")
    write(admin, box, today() - (OLD_DAYS - 1) * DAY)
    for statement in due.split("; "):
        ask(admin, statement)
    assert days(admin, box) == [*map(name, (today() - n * DAY for n in (OLD_DAYS, OLD_DAYS - 1))), *wanted()]


def test_ids_that_are_not_counted_may_repeat(box: Box, admin: pymysql.Connection[Any]) -> None:
    ask(admin, f"ALTER TABLE {box.options.table} MODIFY id BIGINT NOT NULL")
    assert any(each.level is Level.ERROR for each in findings(box.dialect))
