"""What a server's own defaults would make of our sessions, were these not set to what they rest on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
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


@pytest.fixture
def under(under_alone: OutboxUnderTest) -> OutboxUnderTest:
    return under_alone


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
