"""What a harvester would park, a stasher refuses before it is written, in the same words."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import psycopg
import pytest
from outbox_api import Record, RecordError, Stasher
from outbox_core.config import load

from .harvesters import Fleet, until
from .shop import INSERT, Shop

LARGEST = 2000
"""Bytes of the largest message that the harvester's client sends."""
HEADERS = (("type", "sale"), ("none", None))

Row = tuple[str, str, str, list[Any], list[Any]]


def rows_beyond_bounds(topic: str) -> dict[str, Row]:
    """Returns what is wrong with each row → a row of which a bounded stasher says what the harvester says."""
    return {
        "too large": (topic, "large", secrets.token_hex(LARGEST // 2), [], []),
        "too large by its headers": (topic, "headers", "", ["h"], [secrets.token_hex(LARGEST // 2)]),
        "not permitted": (f"{topic}-elsewhere", "elsewhere", "v", [], []),
        "outbox's own topic": ("outbox.checkpoints", "own", "v", [], []),
        "a long key": (topic, "k" * 65_537, "v", [], []),
    }


def rows_of_no_record(topic: str) -> dict[str, tuple[Row, str, str]]:
    """Returns rows that no stasher writes, with words of the harvester and of the stasher about each."""
    return {
        "no topic of Kafka's": (
            (f"{topic} bad", "name", "v", [], []),
            "topic names have 1 to 249 letters, digits, '.', '_' and '-'",
            "a record's topic is text: a topic has 1 to 249 letters from a to z, digits, '.', '_' and '-'",
        ),
        "a header without a name": (
            (topic, "header", "v", [None], ["x"]),
            "a header whose name is null",
            "headers are pairs of a name, which is text, and a value",
        ),
    }


def record_of(row: Row) -> Record:
    topic, key, value, names, values = row
    return Record(topic, key, value, tuple(zip(names, values, strict=True)))


def left_alone(connection: psycopg.Connection, stasher: Stasher, record: Record) -> str:
    """Returns the error of a record, which leaves the transaction as it was; it may go on."""
    with connection.transaction():
        connection.execute("INSERT INTO sales VALUES (%s, 1)", (repr(record.key)[:50],))
        with pytest.raises(RecordError) as refused:
            stasher.stash(connection, record)
        stasher.stash_many(connection, [])
    return str(refused.value)


def test_each_refusal_says_what_the_dead_letter_would(shop: Shop, fleet: Fleet, tmp_path: Path) -> None:
    beyond, no_record = rows_beyond_bounds(shop.topic), rows_of_no_record(shop.topic)
    good = Record(shop.topic, "good", "v", HEADERS)
    with shop.connect() as connection:
        connection.execute("ALTER TABLE outbox ALTER kafka_key TYPE text")  # goharvest's takes 100 characters
        for row in (*beyond.values(), *(row for row, _, _ in no_record.values())):
            connection.execute(INSERT, row)
    harvester = fleet.start(
        "a",
        topics=[shop.topic, f"{shop.topic} *", "outbox.*"],
        producerKafkaConfig={"message.max.bytes": str(LARGEST)},
    )
    wanted = len(beyond) + len(no_record)
    letters = until(
        lambda: len(found := harvester.outbox("parked", "list")["letters"]) == wanted and found,
        "all are parked",
        60,
    )
    reasons = {letter["key"][:20]: letter["reason"] for letter in letters}

    stasher = Stasher(bounds=load(tmp_path / "a.yaml").harvest.bounds)
    with shop.connect() as connection:
        for row in beyond.values():
            error, reason = left_alone(connection, stasher, record_of(row)), reasons[row[1][:20]]
            assert error == f"{reason} (topic {row[0]!r}, key {row[1]!r:.60})"
        for row, parked, refused in no_record.values():
            assert parked in reasons[row[1]]
            assert refused in left_alone(connection, stasher, record_of(row))
        # Without the refusal, the transaction itself would fail, or a key wait for an operator.
        assert connection.execute("SELECT count(*) FROM sales").fetchone() == (wanted,)
        with connection.transaction():
            stasher.stash(connection, good)
    until(
        lambda: [message.key() for message in shop.messages()] == [b"good"],
        "what is within bounds arrives",
        60,
    )
    harvester.leave()


@pytest.mark.parametrize("text", ["a\0", "\ud800"], ids=["NUL", "half of a surrogate pair"])
@pytest.mark.parametrize("place", ["key", "value", "header"])
def test_a_text_that_the_database_cannot_hold_does_not_fail_the_transaction(
    shop: Shop, text: str, place: str
) -> None:
    parts: dict[str, Any] = {"key": "k"} | (
        {"headers": (("name", text),)} if place == "header" else {place: text}
    )
    record = Record(shop.topic, **parts)
    headers = [name for name, _ in record.headers], [value for _, value in record.headers]
    with shop.connect() as connection:
        assert left_alone(connection, Stasher(), record)
        with pytest.raises((psycopg.DataError, UnicodeEncodeError)), connection.transaction():
            connection.execute(INSERT, (record.topic, record.key, record.value, *headers))
