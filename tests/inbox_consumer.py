"""A consumer with effects in its database, which may be killed at any moment.

It commits offsets late: what it has done since is read again, by itself or by the other one.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import suppress

import psycopg
from confluent_kafka import Consumer, KafkaException, Message
from outbox_api.application.inbox import Inbox

TABLES = """
CREATE TABLE counters (key TEXT PRIMARY KEY, total BIGINT NOT NULL);
CREATE TABLE effects (key TEXT NOT NULL, place BIGINT NOT NULL, number BIGINT NOT NULL);
CREATE TABLE repeats (records BIGINT NOT NULL)
"""
"""A counter for each key; each effect with the counter then, as often as there was one; repeats left out."""

_COUNT = """
INSERT INTO counters VALUES (%s, 1) ON CONFLICT (key) DO UPDATE SET total = counters.total + 1 RETURNING total
"""
_BATCH = 200
_LATE = 1500
"""Offsets are committed once so many messages have been taken, or none is left."""


def take(connection: psycopg.Connection, messages: Sequence[Message], inbox: Inbox | None) -> None:
    """Takes messages in one transaction: an effect for each that is no repeat."""
    with connection.transaction():
        repeats = 0
        for message in messages:
            if inbox and not inbox.first(connection, Inbox.id_of(message.headers())):
                repeats += 1
                continue
            key, number = (message.key() or b"").decode(), int(message.value() or b"")
            [(place,)] = connection.execute(_COUNT, (key,)).fetchall()
            connection.execute("INSERT INTO effects VALUES (%s, %s, %s)", (key, place, number))
        if repeats:
            connection.execute("INSERT INTO repeats VALUES (%s)", (repeats,))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("dsn", "bootstrap", "topic"):
        parser.add_argument(name)
    parser.add_argument("--without-inbox", action="store_true")
    arguments = parser.parse_args()
    inbox = None if arguments.without_inbox else Inbox("fire")
    consumer = Consumer(
        {
            "bootstrap.servers": arguments.bootstrap,
            "group.id": arguments.topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
        }
    )
    consumer.subscribe([arguments.topic])
    taken = 0
    with psycopg.connect(arguments.dsn, autocommit=True) as connection:
        while True:
            messages = [each for each in consumer.consume(_BATCH, 0.2) if each.error() is None]
            while messages:
                # Two that have the same partition for a moment may wait for each other.
                with suppress(psycopg.errors.DeadlockDetected):
                    take(connection, messages, inbox)
                    break
            taken += len(messages)
            if taken >= _LATE or (taken and not messages):
                with suppress(KafkaException):  # the group is dividing the partitions anew
                    consumer.commit(asynchronous=False)
                    taken = 0


if __name__ == "__main__":
    main()
