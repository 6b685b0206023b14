"""Invalid rows: whatever a database permits in an outbox, a row stops only the rows of its own key."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import Final

import pytest
from outbox_api import DeadLetterStatus, MarkedRecord

from outbox_testkit.conformance.base import Conformance
from outbox_testkit.conformance.under_test import ALL, Box, Hand, content, plain

ODD: Final = {
    "no topic": "kafka_topic = NULL",
    "an empty topic": "kafka_topic = ''",
    "no time": "create_time = NULL",
    "a time that is none": "create_time = 'yesterday'",
    "somebody's leader id": "leader_id = 'nobody'",
    "a negative id": "id = -7",
    "the id zero": "id = 0",
    "a late id": "id = 4611686018427387904",
    "the greatest id": "id = 9223372036854775807",
    "the least id": "id = -9223372036854775808",
    "an endless time": "create_time = 'infinity'",
    "a time before all others": "create_time = '-infinity'",
    "a time of long ago": "create_time = '4713-01-01 00:00:00 BC'",
    "the last time": "create_time = '9999-12-31 23:59:59'",
    "the first time": "create_time = '0001-01-01 00:00:00'",
    "a time of zeros": "create_time = '0000-00-00 00:00:00'",
    "a number": "kafka_value = 5",
    "a fraction": "kafka_value = 0.5",
    "a truth": "kafka_value = TRUE",
    "bytes that are no text": "kafka_value = X'FF00FE'",
    "a text that is not UTF-8": "kafka_value = CAST(X'FF41' AS TEXT)",
    "a topic that is not UTF-8": "kafka_topic = CAST(X'FF41' AS TEXT)",
    "a topic of bytes": "kafka_topic = X'FF41'",
    "headers that are no list": "kafka_header_keys = 'name', kafka_header_values = 'value'",
    "a list that does not end": "kafka_header_keys = '[\"name\"', kafka_header_values = '[\"value\"'",
    "an object": "kafka_header_keys = '{\"name\": 1}', kafka_header_values = '[1]'",
    "headers of bytes": "kafka_header_keys = X'FF', kafka_header_values = X'FF'",
    "names without values": "kafka_header_keys = '[\"name\"]'",
    "an array without values": "kafka_header_keys = '{name}'",
    "values without names": "kafka_header_values = '[\"value\"]'",
    "an array without names": "kafka_header_values = '{value}'",
    "a header without a name": "kafka_header_keys = '[null]', kafka_header_values = '[\"value\"]'",
    "an array without a name": "kafka_header_keys = '{NULL}', kafka_header_values = '{value}'",
    "a header that is a number": "kafka_header_keys = '[\"name\"]', kafka_header_values = '[1]'",
}
"""Description → assignment to the columns. If the database refuses an assignment, the case is skipped."""

PLACING: Final = [("kafka_partition",), ("kafka_timestamp",), ("kafka_partition", "kafka_timestamp")]
"""Which of the columns for partition and time an outbox has."""


class OddRowConformance(Conformance):
    """Rows that no stasher writes."""

    @pytest.mark.parametrize("assignment", ODD.values(), ids=ODD)
    def test_an_odd_row_stops_no_other_key(self, box: Box, assignment: str) -> None:
        box.stash(
            plain("before", "before"), plain("odd", "odd"), plain("odd", "tail"), plain("after", "after")
        )
        permitted = _write(box, assignment)
        hand = box.lead()
        selected = hand.advance()
        assert content(hand.table.rows(hand.last())) == content(selected)
        hands = box.lead_all(2)
        for bounded in (False, True):
            for hand in hands:
                hand.remark()
            found = [each for hand in hands for each in _marked(hand, bounded=bounded)]
            assert sorted(record.key for _, record in found) == ["after", "before", "odd", "odd"]
            sound = [record for _, record in found if record.key != "odd"]
            assert sorted((record.value, record.fault) for record in sound) == [
                ("after", None), ("before", None)
            ]  # fmt: skip
        (hand, tail), (_, odd) = sorted(
            ((hand, record) for hand, record in found if record.key == "odd"),
            key=lambda each: each[1].value != "tail",
        )
        if not permitted:
            assert (odd.value, odd.fault) == ("odd", None)
        assert hand.table.backlog().records == 4
        first, *_ = sorted((odd.id, tail.id))
        assert hand.park([odd.id, tail.id], first, reason="odd") == 1
        self._end(box, first)

    def test_a_key_of_bytes_is_the_key_that_it_is_read_as(self, box: Box) -> None:
        box.stash(plain("odd", "head"), plain("odd", "odd"), plain("after"))
        _write(box, "kafka_key = X'6F6464'")
        one, other = ({record.key for record in hand.mark()} for hand in box.lead_all(2))
        assert not one & other
        hand = box.lead()
        keys = [record.key for record in hand.mark()]
        assert len(keys) == 3
        hand.remark()
        box.park(hand, "odd")
        assert [record.key for record in hand.mark()] == [key for key in keys if key != "odd"]

    @pytest.mark.parametrize("columns", PLACING, ids=" ".join)
    def test_partition_and_time_are_read_of_the_columns_that_there_are(
        self, box: Box, columns: tuple[str, ...]
    ) -> None:
        table, named = box.options.table, dict.fromkeys(columns, 5)
        for column in columns:
            box.execute(f"ALTER TABLE {table} ADD {column} DECIMAL(19) DEFAULT -1")
        box.stash(plain("any"), plain("null"), plain("five"), plain("odd"), plain("odd", "tail"))
        for key, number in {"null": "NULL", "five": "5", "odd": "-2"}.items():
            written = ", ".join(f"{column} = {number}" for column in columns)
            box.execute(f"UPDATE {table} SET {written} WHERE kafka_key = '{key}' AND kafka_value = 'v'")
        hand = box.lead()
        selected = hand.advance()
        assert content(hand.table.rows(hand.last())) == content(selected)
        hand.remark()
        for records in (selected, hand.mark()):
            given = {each.key: (each.partition, each.timestamp_ms) for each in records if each.value == "v"}
            five = (named.get("kafka_partition"), named.get("kafka_timestamp"))
            assert given == {"any": (None, None), "null": (None, None), "five": five, "odd": (None, None)}
            faults = [each.fault for each in records if each.fault]
            assert len(faults) == 1
            assert "-2" in faults[0]

    def _end(self, box: Box, head: int) -> None:
        """Applies the operator's verbs to the dead letter of a row."""
        hand, letters = box.lead(), box.dead_letters()
        assert sorted(hand.values(ALL)) == ["after", "before"]
        (letter,) = letters.find()
        assert (letter.record.id, letter.record.key) == (head, "odd")
        assert letters.retry([head]) == [head]
        again = [record.id for record in hand.mark() if record.key == "odd"]
        assert again[0] == head
        assert hand.park(again, head) == 1
        assert letters.skip([head]) == [head]
        assert [letter.status for letter in letters.find()] == [DeadLetterStatus.SKIPPED]
        assert [record.id for record in hand.mark()] == again[1:]


def _write(box: Box, assignment: str) -> bool:
    """Updates the earlier row of the key ``odd``; returns whether the database permits it."""
    (odd,) = [record.id for record in box.lead().mark() if record.value == "odd"]
    connection = box.application()
    with suppress(Exception), closing(connection.cursor()) as cursor:
        cursor.execute(f"UPDATE {box.options.table} SET {assignment} WHERE id = {odd}")
        connection.commit()
        return True
    connection.rollback()
    return False


def _marked(hand: Hand, *, bounded: bool) -> list[tuple[Hand, MarkedRecord]]:
    records = hand.mark(ALL, max_bytes=1 << 20) if bounded else hand.mark(ALL)
    return [(hand, record) for record in records]
