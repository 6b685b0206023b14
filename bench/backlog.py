"""Writes backlogs into PostgreSQL's outbox, like the transactions of an application."""

from __future__ import annotations

import psycopg

PADDED = "lpad(g::text, 100, '.')"
"""A value of 100 bytes."""


def tidy(connection: psycopg.Connection) -> None:
    """Vacuums the outbox and writes a checkpoint of the database, so that measurements are independent."""
    connection.execute("VACUUM (ANALYZE) outbox")
    connection.execute("CHECKPOINT")


def insert(connection: psycopg.Connection, topic: str, rows: int, key: str, value: str = PADDED) -> None:
    """Inserts rows at once.

    Args:
        connection: The connection.
        topic: The rows' topic.
        rows: How many.
        key: An SQL expression, in which ``g`` is the row's number, from 1 on.
        value: An SQL expression for the value.
    """
    statement = f"""
        INSERT INTO outbox
            (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values)
        SELECT now(), %s, {key}, {value}, '{{h}}', '{{v}}' FROM generate_series(1, {rows}) AS g
    """
    connection.execute(statement.encode(), (topic,))
