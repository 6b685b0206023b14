"""An outbox whose topics the server compares without regard to case."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from outbox_api import Record
from outbox_testkit.conformance import OutboxUnderTest
from outbox_testkit.conformance.under_test import Box

TOPIC = "VARCHAR(249) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL"


@pytest.fixture
def box(under: OutboxUnderTest) -> Iterator[Box]:
    with ExitStack() as stack:
        made = Box(under, stack)
        made.dialect.create()
        with closing(made.application()) as connection, connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE {made.options.table} MODIFY kafka_topic {TOPIC}")
        yield made


def test_a_topic_that_is_paused_is_no_other_one(box: Box) -> None:
    box.stash(*(Record(topic, topic, "v") for topic in ("orders", "Orders", "orders")))
    with closing(box.dialect.watch()) as view:
        assert view.waiting() == {"orders": 2, "Orders": 1}
    table = box.connect()
    assert [table.pause(topic, "ann", "").topic for topic in ("orders", "Orders")] == ["orders", "Orders"]
    assert table.resume("ORDERS") is None
    marked = box.lead().mark(topics=("orders",))
    assert [each.topic for each in marked] == ["Orders"]
