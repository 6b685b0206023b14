"""The plain sequential loop with which the harvester is compared.

It repeats: delete the last batch and mark the next in one round trip, produce it, wait until all of it is
acknowledged. No fence, no election, no lanes: the minimum that moves rows from a table to a topic safely.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from uuid import uuid4

import psycopg
from confluent_kafka import Producer

BATCH = 5000

PURGE = "DELETE FROM outbox WHERE id BETWEEN %s AND %s AND leader_id = %s"
MARK = """
    UPDATE outbox SET leader_id = %s
    WHERE id IN (SELECT id FROM outbox WHERE leader_id IS NULL ORDER BY id LIMIT %s)
    RETURNING id, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values
"""

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

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failures.append(error)

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


def main(dsn: str, bootstrap: str, how: str) -> None:
    """Runs until it is killed.

    Args:
        dsn: The database.
        bootstrap: The broker.
        how: ``flush`` after each batch, ``commit`` a transaction for each, or ``discard``: without a broker.
    """
    send = sending(bootstrap, transactions=how == "commit") if how != "discard" else lambda _rows: None
    batch, low, high = uuid4(), 1, 0
    with psycopg.connect(dsn, autocommit=True) as connection:
        while True:
            last, batch = batch, uuid4()
            with connection.pipeline(), connection.transaction():
                connection.execute(PURGE, (low, high, last), prepare=True)
                marked = connection.execute(MARK, (batch, BATCH), prepare=True, binary=True)
            rows = sorted(marked.fetchall())
            send(rows)
            low, high = (rows[0][0], rows[-1][0]) if rows else (1, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
