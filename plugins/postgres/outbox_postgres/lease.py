"""The lease of an outbox, see :mod:`outbox_postgres.lease_statements`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from outbox_sdk import AccessDenied, DriverError
from outbox_sdk.election import LeaseWatch

from outbox_postgres.auxiliary_tables import init_and
from outbox_postgres.data_source import DataSource
from outbox_postgres.errors import translated
from outbox_postgres.layout import Layout
from outbox_postgres.lease_statements import NOTHING, LeaseStatements
from outbox_postgres.names import quoted

_MS = 1000


class PostgresLease:
    """The ``WatchedLease`` of PostgreSQL. Made by ``PostgresDialect.lease``."""

    def __init__(self, connection: psycopg.Connection[Any], source: DataSource, layout: Layout) -> None:
        self._connection = connection
        self._source = source
        self._name = layout.name
        self._user = layout.user
        self._sql = LeaseStatements(layout)
        self._holds = False
        self._watch = LeaseWatch()
        self._left = 0.0
        """For how many seconds another process held the lease, at the last look."""

    def open(self) -> None:
        """Looks for the sequence, and listens for releases.

        Raises:
            DriverError: There is none, or the server is gone.
            AccessDenied: The user may not use it.
        """
        sequence = self._sql.sequence
        grant = f"GRANT SELECT, UPDATE ON SEQUENCE {sequence} TO {quoted(self._user)}"
        needs = f"the elector lease needs the sequence {sequence} in {self._source}"
        with translated(self._source, "look at the lease"):
            [(allowed,)] = self._fetch(
                "SELECT CASE WHEN to_regclass($1) IS NOT NULL THEN"
                " has_sequence_privilege($1, 'SELECT') AND has_sequence_privilege($1, 'UPDATE') END",
                str(sequence),
            )
            if allowed:
                self._connection.execute(self._sql.listen)
        if allowed is None:
            raise DriverError(f"{needs}, which does not exist: {init_and(grant)}", retryable=False)
        if not allowed:
            raise AccessDenied(f"{needs}; let somebody who may run: {grant}")

    def take(self, holder: str, seconds: float) -> int | None:
        """Takes the lease if it is free or has run out, or renews the holder's own.

        A process that does not get it writes nothing and locks nothing.
        """
        wanted = (self._name, holder, round(seconds * _MS))
        with translated(self._source, "take the lease"):
            number = self._number(self._sql.renew, wanted) if self._holds else None
            if number is None:
                number = self._take(wanted)
        self._holds = number is not None
        return number

    def _take(self, wanted: tuple[str, str, int]) -> int | None:
        name, holder, length = wanted
        if not (found := self._fetch(self._sql.look, name)):
            self._connection.execute(self._sql.make, (name,))
            return self._number(self._sql.take, (*wanted, NOTHING))
        [(former, former_length, until, left)] = found
        if former == holder:
            return self._number(self._sql.renew, wanted)
        unchanged = self._watch.left((former, until), max(former_length, length) / _MS)
        self._left = min(left / _MS, unchanged)
        if self._left >= 0:
            return None
        return self._number(self._sql.take, (*wanted, until if unchanged <= 0 else NOTHING))

    def wait(self, seconds: float) -> None:
        """Waits until the lease is released or has run out, or ``seconds`` have passed."""
        with translated(self._source, "wait for the lease"):
            for _ in self._connection.notifies(timeout=max(0.0, min(seconds, self._left)), stop_after=1):
                pass

    def release(self, holder: str) -> None:
        """Gives the lease up, if ``holder`` has it."""
        self._holds = False
        with translated(self._source, "release the lease"):
            self._connection.execute(self._sql.release, (self._name, holder))

    def close(self) -> None:
        """Disconnects."""
        self._connection.close()

    def _number(self, statement: str, wanted: Sequence[object]) -> int | None:
        found = self._fetch(statement, *wanted)
        return int(found[0][0]) if found else None

    def _fetch(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, parameters, binary=True).fetchall()
