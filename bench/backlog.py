"""Writes backlogs into PostgreSQL's outbox, as an application's transactions leave them."""

from __future__ import annotations

import psycopg

PADDED = "lpad(g::text, 100, '.')"
"""A value of 100 bytes."""


def tidy(connection: psycopg.Connection) -> None:
    """Vacuums the outbox and writes a checkpoint, so that no measurement pays for an earlier one."""
    connection.execute("VACUUM (ANALYZE) outbox")
    connection.execute("CHECKPOINT")


def insert(connection: psycopg.Connection, topic: str, rows: int, key: str, value: str = PADDED) -> None:
    """Inserts rows at once.

    Args:
        connection: The connection.
        topic: The rows' topic.
        rows: How many.
        key: An SQL expression, in which ``g`` is the row's number from 1 on.
        value: Another one.
    """
    statement = f"""
        INSERT INTO outbox
            (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values)
        SELECT now(), %s, {key}, {value}, '{{h}}', '{{v}}' FROM generate_series(1, {rows}) AS g
    """
    connection.execute(statement.encode(), (topic,))
