"""What a server's own defaults would make of our sessions, were these not set to what they rest on."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import Any

import pytest
from outbox_api import DriverError
from outbox_servers.services.external import connect_mysql
from outbox_testkit.conformance import OutboxUnderTest
from outbox_testkit.conformance.under_test import Box, plain

HOSTILE = {
    "sql_select_limit": 10,
    "max_join_size": 10,
    "sql_safe_updates": 1,
    "completion_type": 2,
    "autocommit": 1,
    "lock_wait_timeout": 1,
    "innodb_lock_wait_timeout": 1,
    "sql_mode": "'ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH'",
    "transaction_isolation": "'SERIALIZABLE'",
}


TIME_OUTS = (
    *("lock_wait_timeout", "innodb_lock_wait_timeout", "net_read_timeout", "net_write_timeout"),
    *("wait_timeout", "max_execution_time", "max_statement_time", "idle_transaction_timeout"),
    *("idle_readonly_transaction_timeout", "idle_write_transaction_timeout"),
)


@pytest.fixture
def under(under_alone: OutboxUnderTest) -> OutboxUnderTest:
    return under_alone


@contextmanager
def defaults(under: OutboxUnderTest, names: Iterable[str], value: object) -> Iterator[list[str]]:
    """Sets defaults of a server for a while; yields those that it has."""
    with closing(connect_mysql(under.options["data_source"].partition("?")[0], autocommit=True)) as root:
        cursor, former = root.cursor(), dict[str, object]()
        for name in names:
            cursor.execute("SHOW GLOBAL VARIABLES LIKE %s", [name])
            former |= dict(cursor.fetchall())
        try:
            for name in former:
                cursor.execute(f"SET GLOBAL {name} = %s", [value])
            yield [*former]
        finally:
            for name, before in former.items():
                cursor.execute(f"SET GLOBAL {name} = {before}")


@pytest.fixture
def hostile(under: OutboxUnderTest) -> Iterator[OutboxUnderTest]:
    """An outbox on a server whose defaults are against us."""
    with closing(connect_mysql(under.options["data_source"].partition("?")[0], autocommit=True)) as root:
        cursor = root.cursor()
        cursor.execute("SELECT VERSION()")
        settings = dict(HOSTILE)
        if "MariaDB" in str(cursor.fetchone()):
            settings["tx_isolation"] = settings.pop("transaction_isolation")
        else:
            settings["range_optimizer_max_mem_size"] = 1
        cursor.execute("SELECT " + ", ".join(f"@@GLOBAL.{name}" for name in settings))
        former = dict(zip(settings, cursor.fetchone() or (), strict=True))
        try:
            for name, value in settings.items():
                cursor.execute(f"SET GLOBAL {name} = {value}")
            yield under
        finally:
            for name, value in former.items():
                cursor.execute(f"SET GLOBAL {name} = %s", [value])


def test_no_default_of_the_server_cuts_a_result_short_or_ends_a_session(hostile: OutboxUnderTest) -> None:
    with ExitStack() as stack:
        box = Box(hostile, stack)
        box.dialect.create()
        box.fill(100, keys=7)
        box.stash(plain("quote", "'\\' \"x\""))
        hand, letters = box.lead(), box.dead_letters()
        records = hand.advance()
        assert len(records) == 101
        assert records[-1].value == "'\\' \"x\""
        assert hand.advance(0, finished=[hand.last()]) == []
        assert hand.purged == 101
        box.fill(60, keys=60)
        heads = box.park(hand, *(f"k{number}" for number in range(30)))
        assert len(letters.find()) == 30
        assert letters.retry(list(heads.values())) == sorted(heads.values())
        ids = hand.ids()
        assert hand.reset(*ids) == len(ids)
        assert hand.table.backlog().records == 60


def test_an_application_of_ours_is_safe_from_them_too(hostile: OutboxUnderTest) -> None:
    with ExitStack() as stack:
        box = Box(hostile, stack)
        box.dialect.create()
        writer = box.application()
        for value in ("one", "two"):
            box.stasher.stash(writer, plain("k", value))
            writer.commit()
        box.stasher.stash(writer, plain("k", "three"))
        writer.rollback()
        assert box.survey() == ["one", "two"]


def test_a_session_sets_each_time_out_that_the_server_has(under: OutboxUnderTest) -> None:
    times, table = (
        {"lock_timeout": 2.0, "statement_timeout": 8.0, "idle_timeout": 8.0},
        under.options["table"],
    )
    with ExitStack() as stack:
        box = Box(replace(under, options={**under.options, **times}), stack)
        box.dialect.create()
        box.fill(20, keys=20)
        locks = stack.enter_context(closing(connect_mysql(under.options["data_source"].partition("?")[0])))
        locks.cursor().execute(f"SELECT id FROM {table} WHERE id = 1 FOR UPDATE")
        names = stack.enter_context(defaults(under, TIME_OUTS, 1))
        hand, view = box.lead(), stack.enter_context(closing(box.dialect.watch()))
        opened: tuple[Any, ...] = (hand.table, box.dead_letters(), view)
        assert len(hand.ids()) == 19, "a locked row is waited for, and left out"
        time.sleep(1.3)
        for session in (each._session for each in opened):
            [found] = session.query("look", "SELECT " + ", ".join(f"@@SESSION.{name}" for name in names))
            assert all(value >= 2 for value in found), dict(zip(names, found, strict=True))
        session = opened[0]._session
        with session.transaction("pause"):
            session.execute(f"UPDATE {table} SET kafka_value = 'x' WHERE id = 20")
            time.sleep(1.3)
            assert session.fetch("SELECT 1")


def test_a_state_that_nobody_knows_is_of_the_session(under: OutboxUnderTest) -> None:
    with ExitStack() as stack:
        box = Box(under, stack)
        box.dialect.create()
        table: Any = box.lead().table
        with pytest.raises(DriverError) as caught, table._session.transaction("signal"):
            table._session.execute_ddl("SIGNAL SQLSTATE '25XYZ' SET MESSAGE_TEXT = 'odd'")
        assert caught.value.retryable
