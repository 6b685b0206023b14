"""Stashing: a record is returned unchanged or is refused, and only if its transaction commits."""

from __future__ import annotations

import pytest
from outbox_api import Capability, Header, MarkedRecord, Record, RecordError

from outbox_testkit.conformance.base import Conformance, needs
from outbox_testkit.conformance.under_test import ALL, Box, plain

TEXTS = (
    "Grüße, 世界",
    "🌍 \U0001d518 \U00020000 \U0010fffd",
    "\u202e right to left, e\N{COMBINING ACUTE ACCENT}, \N{ZERO WIDTH JOINER}\ufeff",
    """a'b"c`d''e""",
    "back\\slash \\n \\x00 \\\\ \\' \\",
    "100% %s %(key)s %%",
    "{x} {} {{x}} :key ::y $1 ? ?1 @p @@v #{z} ${z}",
    "-- comment /* another */; DROP TABLE outbox",
    " \t\r\n ",
    " led and trailed ",
    "NULL",
    "null",
    '{"a": [1, null], "b": "\\u00e9"}',
    '{"a",NULL,\\}',
    "\x01\x1f\x7f\x85\u2028",
)
HEADERS: tuple[tuple[Header, ...], ...] = (
    (),
    (("a", "1"),),
    (("a", "1"), ("a", "2"), ("a", "1")),
    (("b", "1"), ("a", "2")),
    (("none", None), ("empty", ""), ("word", "NULL")),
    (("", "nameless"),),
    (("a", b"bytes that are text"),),
    (("long", "x" * 10_000),),
    tuple((f"h{number}", str(number)) for number in range(100)),
)
ODD = {
    "a NUL in a key": Record("orders", "k\0k", "v"),
    "a NUL in a value": Record("orders", "k", "v\0v"),
    "a NUL in a header": Record("orders", "k", "v", (("h\0", "\0"),)),
    "a NUL in a topic": Record("orders\0", "k", "v"),
    "half a surrogate pair in a key": Record("orders", "k\ud83c", "v"),
    "half a surrogate pair in a value": Record("orders", "k", "v\udf0d"),
    "a header of bytes that are no text": Record("orders", "k", "v", (("h", b"\xff\x00\xfe"),)),
    "a key of 256 characters": Record("orders", "k" * 256, "v"),
    "a key of 5,000 characters": Record("orders", "é" * 5000, "v"),
    "a header name of 5,000 characters": Record("orders", "k", "v", (("h" * 5000, "1"),)),
    "a header of 1,000,000 characters": Record("orders", "k", "v", (("h", "é" * 1_000_000),)),
    "5,000 headers": Record("orders", "k", "v", tuple((f"h{number}", "1") for number in range(5000))),
}


def octets(text: str | bytes | None) -> bytes | None:
    """Returns the record as it would be in a topic."""
    return text.encode() if isinstance(text, str) else text


def assert_same(found: MarkedRecord, record: Record) -> None:
    """Compares the marked records with the stashed ones, as they would be in a topic."""
    assert found.fault is None
    assert (found.topic, found.key) == (record.topic, record.key)
    assert octets(found.value) == octets(record.value)
    headers = [(name, octets(value)) for name, value in found.headers]
    assert headers == [(name, octets(value)) for name, value in record.headers]
    assert found.partition is None


def assert_comes_back(box: Box, records: list[Record]) -> None:
    """Stashes records, marks them, and compares them."""
    box.stash(*records)
    found = box.lead().mark(ALL)
    assert len(found) == len(records)
    for one, record in zip(found, records, strict=True):
        assert_same(one, record)


class StashConformance(Conformance):
    """Marks return what was stashed."""

    def test_records_come_back_in_the_order_they_were_stashed_in(self, box: Box) -> None:
        records = [Record(f"topic-{number % 3}", "k", f"v{number}") for number in range(1000)]
        assert_comes_back(box, records)

    def test_text_comes_back_whatever_is_in_it(self, box: Box) -> None:
        assert_comes_back(box, [Record("orders", text, text, ((text, text),)) for text in TEXTS])

    def test_keys_of_every_length_come_back(self, box: Box) -> None:
        keys = ["", "k", "k" * 100, "é" * 100, "🌍" * 100, "k" * 200]
        assert_comes_back(box, [plain(key) for key in keys])

    def test_values_of_every_length_come_back_and_none_is_not_empty(self, box: Box) -> None:
        values = ["", None, "v", "v" * 4000, "é" * 10_000, "🌍" * 100_000, "v" * 1_000_000]
        assert_comes_back(box, [plain(value=value) for value in values])

    def test_headers_of_every_shape_come_back(self, box: Box) -> None:
        assert_comes_back(box, [Record("orders", "k", "v", headers) for headers in HEADERS])

    def test_topics_of_every_length_come_back(self, box: Box) -> None:
        assert_comes_back(box, [Record(topic, "k", "v") for topic in ("t", "a.B-c_9", "t" * 249)])

    @pytest.mark.parametrize("oddity", ODD)
    def test_an_odd_record_is_held_exactly_or_refused(self, box: Box, oddity: str) -> None:
        application, record = box.application(), ODD[oddity]
        box.stasher.stash(application, plain(value="before"))
        held = [plain(value="before"), record, plain(value="after")]
        try:
            box.stasher.stash_many(application, [plain(value="not sent"), record])
            held.insert(1, plain(value="not sent"))
        except RecordError:
            held.remove(record)
        # The transaction continues as if nothing had happened.
        box.stasher.stash(application, plain(value="after"))
        application.commit()
        found = box.lead().mark()
        assert len(found) == len(held)
        for one, wanted in zip(found, held, strict=True):
            assert_same(one, wanted)

    @needs(Capability.BYTES_VALUES)
    def test_bytes_come_back_and_text_as_its_bytes(self, bytes_box: Box) -> None:
        values = [bytes(range(256)), b"", None, b"\\x00 '\"%s", bytes(range(256)) * 4000, "Grüße 🌍", ""]
        assert_comes_back(bytes_box, [Record("orders", "k", value) for value in values])

    def test_a_rollback_leaves_nothing(self, box: Box) -> None:
        application = box.application()
        box.stasher.stash_many(application, [plain(value=f"gone{number}") for number in range(3)])
        application.rollback()
        box.stasher.stash(application, plain(value="stays"))
        application.commit()
        box.stasher.stash(application, plain(value="gone too"))
        application.rollback()
        assert box.survey() == ["stays"]

    def test_a_connection_that_is_closed_leaves_what_it_committed(self, box: Box) -> None:
        application = box.application()
        box.stasher.stash(application, plain(value="committed"))
        application.commit()
        box.stasher.stash(application, plain(value="not committed"))
        application.close()
        assert box.survey() == ["committed"]

    def test_records_of_two_outboxes_share_a_transaction(self, box: Box) -> None:
        other, application = box.beside("b"), box.application()
        for end in (application.rollback, application.commit):
            box.stasher.stash(application, plain(value="here"))
            other.stasher.stash(application, plain(value="there"))
            end()
        assert box.survey() == ["here"]
        assert other.survey() == ["there"]

    def test_what_is_committed_later_by_anybody_comes_later(self, box: Box) -> None:
        applications = [box.application() for _ in range(3)]
        for number in range(30):
            application = applications[number % 3]
            box.stasher.stash(application, plain(value=f"v{number}"))
            application.commit()
        assert box.survey() == [f"v{number}" for number in range(30)]
