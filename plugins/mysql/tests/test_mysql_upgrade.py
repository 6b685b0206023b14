"""A fence that the version before made serves on, and lacks nothing that came later."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pytest
from outbox_sdk import AccessDenied, Level, TransactionalLane
from outbox_testkit.conformance import OutboxUnderTest
from outbox_testkit.conformance.under_test import Box


@pytest.fixture
def box(under: OutboxUnderTest) -> Iterator[Box]:
    """An outbox with a fence of its own, as the version before made it, a lane of which had a note."""
    with ExitStack() as stack:
        fence = f"fence_{uuid4().hex}"
        box = Box(replace(under, options={**under.options, "fence_table": fence}), stack)
        box.dialect.create()
        hand = box.lead()
        hand.table.set_transactional(hand.fence, TransactionalLane(1))
        execute(box, f"ALTER TABLE {fence} DROP COLUMN sender, DROP COLUMN marker_place")
        yield box


def execute(box: Box, *statements: str) -> None:
    connection = box.application()
    for statement in statements:
        connection.cursor().execute(statement)
    connection.commit()


def test_it_goes_on_with_what_it_noted(box: Box) -> None:
    table = box.connect()
    assert table.transactional_lanes() == {0: TransactionalLane(1)}
    fence = table.enter(0, 1, table.bump(1, "next"))
    assert fence.token == 2
    table.set_transactional(fence, TransactionalLane(1, "sender", "place"))
    assert table.transactional_lanes() == {0: TransactionalLane(1, "sender", "place")}


def test_several_processes_meet_it_at_once(box: Box) -> None:
    with ThreadPoolExecutor(6) as pool:
        tables = list(pool.map(lambda _: box.connect(), range(6)))
    assert [table.transactional_lanes() for table in tables] == [{0: TransactionalLane(1)}] * 6
    assert len({table.identity() for table in tables}) == 1


def test_it_is_checked_and_made_whole_by_create(box: Box) -> None:
    [finding] = [each for each in box.dialect.check() if each.subject == "upgrade"]
    assert finding.level is Level.WARNING
    assert f"ALTER TABLE `{box.options.fence_table}` ADD sender LONGTEXT" in finding.cure
    assert list(box.dialect.create()) == []
    assert not [each for each in box.dialect.check() if each.subject == "upgrade"]


def test_who_may_not_is_told_what_somebody_else_may_run(box: Box) -> None:
    options: Any = box.options
    user = f"u{uuid4().hex[:12]}"
    database = options.source.database
    execute(
        box,
        f"CREATE USER {user} IDENTIFIED BY 'secret'",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {database}.* TO {user}",
    )
    parts = urlsplit(options.data_source)
    location = f"{user}:secret@{parts.hostname}:{parts.port}"
    limited = Box(
        replace(
            box.under,
            options={**box.under.options, "data_source": urlunsplit(parts._replace(netloc=location))},
        ),
        ExitStack(),
    )
    with pytest.raises(AccessDenied, match="let somebody who may run this: ALTER TABLE"):
        limited.dialect.connect()
