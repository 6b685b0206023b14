"""An operator's connection to the dead letters of one outbox: list, retry, skip, redrive."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import psycopg
from outbox_sdk import DeadLetter, DeadLetterStatus
from outbox_sdk.parking import listed

from outbox_postgres.data_source import DataSource
from outbox_postgres.errors import translated
from outbox_postgres.layout import Layout
from outbox_postgres.parking_statements import ParkingStatements
from outbox_postgres.rows import record
from outbox_postgres.sql_ascii import spelled
from outbox_postgres.statements import FENCE_LOCK


class PostgresDeadLetters:
    """The ``DeadLetters`` of PostgreSQL. Made by ``PostgresDialect.dead_letters``."""

    def __init__(self, connection: psycopg.Connection[Any], source: DataSource, layout: Layout) -> None:
        self._connection = connection
        self._source = source
        self._name = layout.name
        self._raw = layout.raw
        self._sql = ParkingStatements(layout.outbox, layout.fence, layout.dead_letters, binary=layout.binary)

    def find(
        self,
        keys: Sequence[str] = (),
        status: DeadLetterStatus | None = None,
        *,
        ids: Collection[int] | None = None,
        whole: bool = True,
    ) -> list[DeadLetter]:
        """Returns dead letters, ordered by id."""
        with translated(self._source, "read the dead letters"):
            fate, chosen = status and status.value, None if ids is None else sorted(ids)
            statement = self._sql.whole_letters if whole else self._sql.short_letters
            rows = self._fetch(statement, spelled(keys, raw=self._raw), fate, chosen)
        return [
            DeadLetter(
                record=found if whole else listed(found),
                reason=reason,
                attempts=attempts,
                since=since,
                age=age,
                status=DeadLetterStatus(state),
            )
            for row in rows
            for found in (record((*row[:6], None)),)
            for state, reason, attempts, since, age in (row[6:],)
        ]

    def waiting(self, key: str) -> int:
        """Returns how many rows of a key the outbox holds; reads the whole table."""
        with translated(self._source, "count the rows of a key"):
            keys = spelled([key], raw=self._raw)
            found = self._connection.execute(self._sql.waiting, (keys,), binary=True).fetchall()
        return int(found[0][0])

    def retry(self, ids: Sequence[int]) -> list[int]:
        """Frees the keys of parked letters."""
        with translated(self._source, "retry dead letters"), self._connection.transaction():
            self._release()
            return self._ids(self._sql.retry, ids)

    def skip(self, ids: Sequence[int]) -> list[int]:
        """Deletes the heads of parked letters from the outbox and frees their keys."""
        with translated(self._source, "skip dead letters"), self._connection.transaction():
            self._release()
            self._connection.execute(self._sql.take, (self._name, list(ids)))
            return sorted([*self._ids(self._sql.drop, ids), *self._ids(self._sql.skip, ids)])

    def redrive(self, ids: Sequence[int]) -> list[int]:
        """Stashes skipped letters again, in the order of their ids."""
        with translated(self._source, "redrive dead letters"):
            return self._ids(self._sql.redrive, ids)

    def close(self) -> None:
        """Disconnects."""
        self._connection.close()

    def _release(self) -> None:
        # From here to the commit no mark and no park is under way, and no leader is being made. The lock that
        # bumps take comes first: two that lock several rows in different order would wait for each other.
        self._connection.execute(FENCE_LOCK, (self._name,))
        self._connection.execute(self._sql.release, (self._name,))

    def _ids(self, statement: str, ids: Sequence[int]) -> list[int]:
        return sorted(row[0] for row in self._fetch(statement, list(ids)))

    def _fetch(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, (self._name, *parameters), binary=True).fetchall()
