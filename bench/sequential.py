"""The plain sequential loop with which the harvester is compared.

It repeats: delete the last batch and mark the next in one round trip, produce it, wait until all of it is
acknowledged. No fence, no election, no lanes: the minimum that moves rows from a table to a topic safely.
Instead of marking the next batch it can select it; then a row that commits late is never seen, which makes it
no harvester, but the least that a database can be asked for.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from uuid import uuid4

import psycopg
from confluent_kafka import Message, Producer

BATCH = 5000

PURGE = "DELETE FROM outbox WHERE id BETWEEN %s AND %s AND leader_id = %s"
MARK = """
    UPDATE outbox SET leader_id = %s
    WHERE id IN (SELECT id FROM outbox WHERE leader_id IS NULL ORDER BY id LIMIT %s)
    RETURNING id, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values
"""

PURGE_RANGE = "DELETE FROM outbox WHERE id BETWEEN %s AND %s"
SELECT = """
    SELECT id, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values
    FROM outbox WHERE id > %s ORDER BY id LIMIT %s
"""
PAUSE = 0.002
"""Seconds after a batch that was empty."""

Rows = list[tuple[int, str, str, str, list[str], list[str]]]


def sending(bootstrap: str, *, transactions: bool) -> Callable[[Rows], None]:
    """Returns a function that publishes a batch: in a transaction, or with a flush."""
    own = {"transactional.id": f"loop-{uuid4()}"} if transactions else {}
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "partitioner": "consistent",
            "compression.type": "lz4",
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
            **own,
        }
    )
    failures: list[object] = []

    def delivered(error: object, message: Message) -> None:
        if error is not None:
            failures.append(error)
        elif message.offset() is None:
            failures.append("reported without an offset")

    def send(rows: Rows) -> None:
        if transactions and rows:
            producer.begin_transaction()
        for _, topic, key, value, names, values in rows:
            producer.produce(
                topic, value, key, headers=list(zip(names, values, strict=True)), on_delivery=delivered
            )
            producer.poll(0)
        if transactions and rows:
            producer.commit_transaction()
        else:
            producer.flush()
        if failures:
            sys.exit(f"not delivered: {failures[0]}")

    if transactions:
        producer.init_transactions()
    return send


def main(dsn: str, bootstrap: str, how: str, statements: str = "mark") -> None:
    """Runs until it is killed.

    Args:
        dsn: The database.
        bootstrap: The broker.
        how: ``flush`` after each batch, ``commit`` a transaction for each, or ``discard``: without a broker.
        statements: ``mark`` or ``select`` the next batch.
    """
    send = sending(bootstrap, transactions=how == "commit") if how != "discard" else lambda _rows: None
    with psycopg.connect(dsn, autocommit=True) as connection:
        advance = marking(connection) if statements == "mark" else selecting(connection)
        print("ready", flush=True)
        while True:
            rows = advance()
            send(rows)
            if not rows:
                time.sleep(PAUSE)


def marking(connection: psycopg.Connection) -> Callable[[], Rows]:
    """Returns a function that deletes the batch it returned before, and marks and returns the next one."""
    batch, low, high = uuid4(), 1, 0

    def advance() -> Rows:
        nonlocal batch, low, high
        last, batch = batch, uuid4()
        with connection.pipeline(), connection.transaction():
            connection.execute(PURGE, (low, high, last), prepare=True)
            marked = connection.execute(MARK, (batch, BATCH), prepare=True, binary=True)
        rows: Rows = sorted(marked.fetchall())
        low, high = (rows[0][0], rows[-1][0]) if rows else (1, 0)
        return rows

    return advance


def selecting(connection: psycopg.Connection) -> Callable[[], Rows]:
    """Returns a function that deletes the batch it returned before, and selects and returns the next one."""
    low, high = 1, 0

    def advance() -> Rows:
        nonlocal low, high
        with connection.pipeline(), connection.transaction():
            connection.execute(PURGE_RANGE, (low, high), prepare=True)
            selected = connection.execute(SELECT, (high, BATCH), prepare=True, binary=True)
        rows: Rows = selected.fetchall()
        low, high = (rows[0][0], rows[-1][0]) if rows else (high + 1, high)
        return rows

    return advance


if __name__ == "__main__":
    main(*sys.argv[1:])
