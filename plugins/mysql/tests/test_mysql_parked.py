"""What waits behind the rows of many parked keys is found soon."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest
from outbox_testkit.conformance import OutboxUnderTest
from outbox_testkit.conformance.under_test import Box, plain

ROWS, KEYS = 40_000, 900


@pytest.fixture
def box(under: OutboxUnderTest) -> Iterator[Box]:
    """An outbox with very many rows of many parked keys in front, where no statement may take long."""
    with ExitStack() as stack:
        box = Box(replace(under, options={**under.options, "statement_timeout": 8.0}), stack)
        box.dialect.create()
        box.fill(KEYS, keys=KEYS)
        box.park(box.lead(), *(f"k{number}" for number in range(KEYS)))
        writer, table = box.application(), box.options.table
        count = KEYS
        while count < ROWS:
            writer.cursor().execute(
                f"INSERT INTO {table} (kafka_topic, kafka_key, kafka_value)"
                f" SELECT kafka_topic, kafka_key, kafka_value FROM {table}"
            )
            count *= 2
        writer.commit()
        box.stash(plain("k", "behind"))
        yield box


def test_one_row_behind_them_is_marked(box: Box) -> None:
    hand = box.lead()
    assert hand.values(1) == ["behind"]
    hand.remark()
    assert hand.values(1, max_bytes=1_000_000) == ["behind"]
    backlog = hand.table.backlog()
    assert backlog.records >= ROWS
    assert backlog.oldest is not None
    assert hand.table.parked().keys == KEYS
