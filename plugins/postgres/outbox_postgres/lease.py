"""The lease of an outbox: one more row of its fence."""
# ruff: noqa: S608 - names are quoted by QuotedName, and every value is a parameter

from __future__ import annotations

from typing import Any

import psycopg
from outbox_sdk.portable.columns import LEASE

from outbox_postgres.data_source import DataSource
from outbox_postgres.errors import translated
from outbox_postgres.layout import Layout

_MS = 1000


class PostgresLease:
    """The ``Lease`` of PostgreSQL. Made by ``PostgresDialect.lease``."""

    def __init__(self, connection: psycopg.Connection[Any], source: DataSource, layout: Layout) -> None:
        self._connection = connection
        self._source = source
        self._name = layout.name
        self._take = f"""
            INSERT INTO {layout.fence} AS lease (name, lane, lanes, token, attempt, holder, since)
            VALUES ($1, {LEASE}, 0, $3, 0, $2, clock_timestamp())
            ON CONFLICT (name, lane) DO UPDATE
            SET token = excluded.token, attempt = lease.attempt + (lease.holder <> excluded.holder)::int,
                holder = excluded.holder, since = clock_timestamp()
            WHERE lease.holder = excluded.holder OR lease.token < 0
               OR clock_timestamp() > lease.since + lease.token * interval '1 millisecond'
            RETURNING attempt"""
        self._release = (
            f"UPDATE {layout.fence} SET token = -1 WHERE name = $1 AND lane = {LEASE} AND holder = $2"
        )

    def take(self, holder: str, seconds: float) -> int | None:
        """Takes the lease if it is free or has run out, or renews the holder's own."""
        with translated(self._source, "take the lease"):
            taken = self._connection.execute(
                self._take, (self._name, holder, round(seconds * _MS)), binary=True
            )
            row = taken.fetchone()
        return int(row[0]) if row else None

    def release(self, holder: str) -> None:
        """Gives the lease up, if ``holder`` has it."""
        with translated(self._source, "release the lease"):
            self._connection.execute(self._release, (self._name, holder))

    def close(self) -> None:
        """Disconnects."""
        self._connection.close()
