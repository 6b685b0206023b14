"""Which records of the log are taken for those of an attempt; without a broker."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME
from outbox_api import MarkedRecord
from outbox_kafka.matches import LoggedRecord, Matches

TIME_MS = 1_000_000
EXACT = ["t"]


def row(number: int, key: str = "k", value: str | None = "v", **more: Any) -> MarkedRecord:
    return MarkedRecord(number, "t", key, value)._replace(**more)


def seen(key: bytes = b"k", value: bytes | None = b"v", at: int = TIME_MS, **more: Any) -> LoggedRecord:
    return LoggedRecord("t", 0, key, value, (), (TIMESTAMP_CREATE_TIME, at))._replace(**more)


APPENDED: dict[str, Any] = {"timestamp": (TIMESTAMP_LOG_APPEND_TIME, 5)}


def found(
    rows: list[MarkedRecord], log: list[LoggedRecord], exact: list[str] | None = None
) -> tuple[list[int], bool]:
    """Returns which rows are found, and whether that is doubtful for the key."""
    matches = Matches(rows, TIME_MS, exact or [])
    for each in log:
        if matches.concerns(each.topic, each.key):
            matches.see(each)
    assert matches.complete == (not matches.missing)
    return sorted(record.id for record in matches.found), bool(matches.repeated)


@pytest.mark.parametrize(
    ("rows", "log", "ids"),
    [
        ([row(1)], [seen()], [1]),
        ([row(1)], [seen(at=TIME_MS + 1)], []),
        ([row(1)], [seen(value=b"w")], []),
        ([row(1)], [seen(value=None)], []),
        ([row(1)], [seen(key=b"l")], []),
        ([row(1)], [seen(topic="u")], []),
        ([row(1)], [seen(headers=(("h", b"1"),))], []),
        ([row(1, headers=[("h", "1")])], [seen(headers=(("h", b"1"),))], [1]),
        ([row(1, value=None)], [seen(value=b"")], []),
        ([row(1, value=None)], [seen(value=None)], [1]),
        ([row(1, key="")], [seen(key=b"")], [1]),
        ([row(1, value="\ud800"), row(2, key="\ud800"), row(3, headers=[("h", "\ud800")])], [seen()], []),
        ([row(1, partition=1)], [seen()], []),
        ([row(1, partition=1), row(2, partition=0)], [seen()], [2]),
        ([row(1, timestamp_ms=7)], [seen()], []),
        ([row(1, timestamp_ms=7)], [seen(at=7)], [1]),
        ([row(1, timestamp_ms=0)], [seen()], [1]),
        ([row(1), row(2)], [seen()], [1]),
        ([row(1), row(2, value="w"), row(3)], [seen(), seen(value=b"w"), seen()], [1, 2, 3]),
    ],
)
def test_a_record_is_the_attempts_if_all_of_it_is_equal(
    rows: list[MarkedRecord], log: list[LoggedRecord], ids: list[int]
) -> None:
    assert found(rows, log) == (ids, False)


def test_equal_rows_that_were_purged_since_cast_no_doubt() -> None:
    assert found([row(2), row(3, key="l")], [seen(), seen()]) == ([2], False)


@pytest.mark.parametrize(
    ("log", "exact", "doubtful"),
    [
        ([seen(**APPENDED)], EXACT, False),
        ([seen(**APPENDED), seen(**APPENDED)], EXACT, True),
        ([seen(**APPENDED)], [], True),
        ([seen(value=b"w", **APPENDED)], [], False),
    ],
)
def test_without_the_attempts_time_a_record_is_doubtful_where_it_may_be_anothers(
    log: list[LoggedRecord], exact: list[str], doubtful: bool
) -> None:
    assert found([row(1)], log, exact)[1] == doubtful


def test_a_time_of_the_rows_own_may_be_that_of_others_too() -> None:
    assert found([row(1, timestamp_ms=7)], [seen(at=7), seen(at=7)], EXACT) == ([1], True)
