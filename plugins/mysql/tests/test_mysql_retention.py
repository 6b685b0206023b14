"""Partitions of kept records in MySQL and MariaDB: rights, locks, and what the last partition holds."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from time import monotonic
from typing import Any

import pymysql
import pytest
from outbox_api import Finding, Level
from outbox_api.portable import PortableDialect
from outbox_api.portable.keeping import Keep
from outbox_api.seams.kept import Tended
from outbox_mysql import MySqlDialect, partitions
from outbox_mysql.connection import open_plain
from outbox_testkit.conformance import OutboxUnderTest
from outbox_testkit.conformance.under_test import Box

from .users import User, create_harvester

pytestmark = pytest.mark.slow

DAY = timedelta(days=1)
OLD_DAYS = 30


@pytest.fixture
def stack() -> Any:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def box(under: OutboxUnderTest, stack: ExitStack) -> Box:
    keep = Keep(for_=10 * DAY.total_seconds())
    made = Box(replace(under, options={**under.options, "keep": keep}), stack)
    made.dialect.create()
    return made


@pytest.fixture
def admin(box: Box, stack: ExitStack) -> pymysql.Connection[Any]:
    connection = stack.enter_context(closing(open_plain(box.options)))
    connection.autocommit(True)
    return connection


def ask(connection: pymysql.Connection[Any], question: str) -> list[Any]:
    with closing(connection.cursor()) as cursor:
        cursor.execute(question)
        return [row[0] for row in cursor.fetchall()]


def keep(admin: pymysql.Connection[Any], box: Box, day: date, rows: int) -> None:
    table, row = box.options.tables.kept, f"('{day} 12:00', 1, 1, 0, 1, 'orders', 'k')"
    columns = "delivered_at, token, key_hash, lacks, id, kafka_topic, kafka_key"
    ask(admin, f"INSERT INTO {table} ({columns}) VALUES {', '.join([row] * rows)}")


def days(admin: pymysql.Connection[Any], box: Box) -> list[str]:
    return ask(
        admin,
        "SELECT partition_name FROM information_schema.partitions WHERE table_schema = DATABASE()"
        f" AND table_name = '{box.options.tables.kept}' ORDER BY partition_ordinal_position",
    )


def name(day: date) -> str:
    return f"p{day:%Y%m%d}"


def today() -> date:
    return datetime.now(UTC).date()


def rewind(admin: pymysql.Connection[Any], box: Box) -> None:
    """Makes the table as a leader of thirty days ago has left it."""
    table = box.options.tables.kept
    ask(admin, f"ALTER TABLE {table} REMOVE PARTITIONING")
    old = today() - OLD_DAYS * DAY
    parts = [f"PARTITION {name(day)} VALUES LESS THAN ('{day + DAY}')" for day in (old, old + DAY)]
    last = "PARTITION rest VALUES LESS THAN (MAXVALUE)"
    ask(
        admin,
        f"ALTER TABLE {table} PARTITION BY RANGE COLUMNS (delivered_at) ({', '.join([*parts, last])})",
    )


def wanted() -> list[str]:
    return [*(name(today() + number * DAY) for number in range(8)), "rest"]


def findings(dialect: PortableDialect) -> list[Finding]:
    return [each for each in dialect.check() if each.subject == "table of kept records"]


def test_a_leader_that_was_away_for_long(box: Box, admin: pymysql.Connection[Any]) -> None:
    rewind(admin, box)
    keep(admin, box, today() - OLD_DAYS * DAY, 2000)
    keep(admin, box, today() - 20 * DAY, 3)
    keep(admin, box, today(), 2)
    assert box.connect().tend_kept(1000) == Tended(3)
    assert days(admin, box) == wanted()
    assert ask(admin, f"SELECT COUNT(*) FROM {box.options.tables.kept}") == [2]


def test_a_last_partition_that_is_too_large_is_left(
    box: Box, admin: pymysql.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "COPIED", 100)
    rewind(admin, box)
    keep(admin, box, today(), 101)
    tended = box.connect().tend_kept(1000)
    assert "has more than 100 records" in tended.faults[0]
    assert days(admin, box) == ["rest"], "what has expired goes all the same"
    assert "has more than 100 records" in next(
        each.cure for each in findings(box.dialect) if each.level is Level.WARNING
    )
    box.dialect.create()
    assert days(admin, box) == wanted()


def test_who_uses_the_table_delays_a_drop_and_a_drop_delays_nobody_for_long(
    box: Box, admin: pymysql.Connection[Any], stack: ExitStack
) -> None:
    rewind(admin, box)
    keep(admin, box, today() - OLD_DAYS * DAY, 10)
    reader = stack.enter_context(closing(open_plain(box.options)))
    ask(reader, f"SELECT COUNT(*) FROM {box.options.tables.kept}")
    values, hand = box.fill(10), box.lead()
    ids, table = hand.ids(), box.connect()
    since = monotonic()
    with ThreadPoolExecutor(2) as pool:
        tended = pool.submit(table.tend_kept, 5)
        purged = pool.submit(hand.purge, *ids)
        assert purged.result(10) == len(values)
        assert tended.result(10)[:2] == (5, True), "rows are deleted meanwhile"
    assert monotonic() - since < 5
    reader.rollback()
    while table.tend_kept(1000).more:
        pass
    assert days(admin, box) == wanted()
    [waits] = ask(table._session.connection, "SELECT @@SESSION.lock_wait_timeout")  # type: ignore[attr-defined]
    assert waits == box.options.lock_timeout, "as before"


@pytest.fixture
def harvester(box: Box, admin: pymysql.Connection[Any], stack: ExitStack) -> tuple[User, MySqlDialect]:
    user, dialect = create_harvester(box, admin, stack)
    user.grant(f"SELECT, INSERT, DELETE ON {box.options.tables.kept}")
    return user, dialect


def test_without_the_rights_rows_are_deleted_and_check_says_what_to_grant(
    box: Box, admin: pymysql.Connection[Any], harvester: tuple[User, MySqlDialect]
) -> None:
    user, dialect = harvester
    rewind(admin, box)
    keep(admin, box, today() - OLD_DAYS * DAY, 25)
    with closing(dialect.connect()) as table:
        calls = [table.tend_kept(20) for _ in range(2)]
        assert [(each.deleted, each.more) for each in calls] == [(20, True), (5, False)]
        assert "may not make and remove partitions" in calls[-1].faults[0]
        assert ask(admin, f"SELECT COUNT(*) FROM {box.options.tables.kept}") == [0]
        warned = [each for each in findings(dialect) if each.level is Level.WARNING]
        assert len(warned) == 2
        assert "no partition for" in warned[1].message
        grant, _, _ = warned[0].cure.partition("; ")
        ask(admin, grant.replace("this user", user.name))
        assert table.tend_kept(20) == Tended()
    assert days(admin, box) == wanted()
    assert {each.level for each in findings(dialect)} == {Level.OK}


def test_the_statements_of_check_are_all_that_is_due(
    box: Box, admin: pymysql.Connection[Any], harvester: tuple[User, MySqlDialect]
) -> None:
    rewind(admin, box)
    _, dialect = harvester
    cure = next(each.cure for each in findings(dialect) if each.level is Level.WARNING)
    _, _, due = cure.partition("due now: ")
    for statement in due.split("; "):
        ask(admin, statement)
    assert days(admin, box) == wanted()
