"""What is set aside stays within the server, whatever its size and its bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from outbox_api import DeadLetterStatus
from outbox_servers.services.external import connect_mysql
from outbox_testkit.conformance import OutboxUnderTest
from outbox_testkit.conformance.under_test import Box, plain

PACKET = 2 << 20
QUOTES = 1_500_000
"""Each is sent as two."""


@pytest.fixture
def under(under_alone: OutboxUnderTest) -> OutboxUnderTest:
    return under_alone


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def root(under: OutboxUnderTest) -> Any:
    return closing(connect_mysql(under.options["data_source"].partition("?")[0], autocommit=True))


@pytest.fixture
def small_packets(under: OutboxUnderTest) -> Iterator[OutboxUnderTest]:
    """An outbox on a server that takes no large packets."""
    with root(under) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT @@GLOBAL.max_allowed_packet")
        [former] = cursor.fetchone()
        cursor.execute(f"SET GLOBAL max_allowed_packet = {PACKET}")
        try:
            yield under
        finally:
            cursor.execute(f"SET GLOBAL max_allowed_packet = {former}")


@pytest.mark.parametrize("binary", [False, True])
def test_poison_that_cannot_be_sent_back_is_parked_skipped_and_redriven(
    small_packets: OutboxUnderTest, stack: ExitStack, binary: bool
) -> None:
    box = Box(small_packets.of_bytes() if binary else small_packets, stack, bytes_values=binary)
    box.dialect.create()
    box.stash(plain("k", "é"), plain("k", "tail"))
    writer = box.application()
    writer.cursor().execute(
        f"UPDATE {box.options.table} SET kafka_value = CONCAT(kafka_value, REPEAT('''', {QUOTES}))"
        " WHERE kafka_value <> 'tail'"
    )
    writer.commit()
    wanted = "é" + "'" * QUOTES
    value = wanted.encode() if binary else wanted
    hand, letters = box.lead(), box.dead_letters()
    ids = hand.ids()
    assert hand.park(ids, ids[0]) == 1
    assert [letter.record.value for letter in letters.find()] == [value]
    assert letters.skip(ids[:1]) == ids[:1]
    assert [(letter.record.value, letter.status) for letter in letters.find()] == [
        (value, DeadLetterStatus.SKIPPED)
    ]
    assert hand.values() == ["tail"]
    assert letters.redrive(ids[:1]) == ids[:1]
    assert [record.value for record in hand.mark()] == [value]


def test_a_key_of_whatever_bytes_is_marked_in_its_lane_and_can_be_parked(
    under: OutboxUnderTest, stack: ExitStack
) -> None:
    box = Box(under, stack)
    box.dialect.create()
    writer, table = box.application(), box.options.table
    with writer.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} MODIFY kafka_key VARBINARY(100) NOT NULL")
        for key, value in ((b"\xff", "1"), (b"\xfe", "2"), (b"\xff", "3"), ("é".encode(), "4"), (b"?", "5")):
            cursor.execute(
                f"INSERT INTO {table} (kafka_topic, kafka_key, kafka_value) VALUES ('t', %s, %s)",
                (key, value),
            )
    writer.commit()
    hands = box.lead_all(3)
    found = {record.value: (hand, record) for hand in hands for record in hand.mark()}
    assert sorted(str(value) for value in found) == ["1", "2", "3", "4", "5"]
    faults = {str(value): record.fault for value, (_, record) in found.items()}
    assert [bool(faults[value]) for value in "12345"] == [True, True, True, False, False]
    assert found["4"][1].key == "é"
    hand, head = found["1"]
    assert found["3"][0] is hand
    assert hand.park([head.id, found["3"][1].id], head.id, reason=head.fault or "") == 1
    assert box.survey() == ["2", "4", "5"], "no other key is taken for it"
    hand = box.lead()
    assert hand.values(excluded=[found["2"][1].key]) == ["4", "5"]
    letters = box.dead_letters()
    [letter] = letters.find()
    assert letter.record.key == head.key
    assert letters.skip([letter.record.id]) == [letter.record.id]
    assert box.survey() == ["2", "3", "4", "5"]
    assert letters.redrive([letter.record.id]) == [letter.record.id]
    assert box.survey() == ["2", "3", "4", "5", "1"]
