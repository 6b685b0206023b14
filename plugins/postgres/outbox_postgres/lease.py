"""The lease that candidates compete for: a row says who leads, and a sequence says until when.

A renewal writes the sequence, which PostgreSQL changes in place, and locks the row. Neither makes a version
of a row, so a snapshot that is held open keeps nothing alive (ADR 30). Changes of a sequence are not undone
and are seen at once, so each statement that writes it locks the row first, and reads the sequence afterwards.
"""
# ruff: noqa: S608 - names are quoted by QuotedName, and every value is a parameter

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import psycopg
from outbox_api import AccessDenied, DriverError
from outbox_api.election import LeaseWatch

from outbox_postgres.data_source import DataSource
from outbox_postgres.ddl import literal, sequence_of
from outbox_postgres.errors import translated
from outbox_postgres.faults import init_and
from outbox_postgres.layout import Layout
from outbox_postgres.options import quoted

_NOW = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
RELEASED = 1
"""What the sequence says of a lease that was released: a time long ago. It is also its first value."""
NOTHING = 0
"""What the sequence never says."""


class LeaseStatements:
    """The statements for one outbox.

    Parameters are $1, the outbox's name, $2, the holder, and $3, for how many milliseconds.

    Attributes:
        sequence: The sequence.
        look: Reads the holder, for how many milliseconds it took the lease, what the sequence says, and how
            many milliseconds of the lease are left; locks nothing. Takes $1 only.
        make: Makes the row, with nobody as its holder; takes $1 only.
        renew: Prolongs the lease of its holder; returns its number.
        take: Gives the lease to another holder if it has run out, or if the sequence still says $4; returns
            the number.
        release: Ends the lease of its holder, and wakes those who listen; takes $1 and $2.
        listen: Listens for that.
    """

    def __init__(self, layout: Layout) -> None:
        self.sequence = sequence_of(layout.outbox)
        name, lease = literal(str(self.sequence)), layout.tables.lease
        until = f"setval({name}::regclass, {_NOW} + $3)"
        channel = f"outbox_lease_{crc32(layout.name.encode()):08x}"
        self.look = f"""
            SELECT lease.holder, lease.length_ms, sequence.last_value, sequence.last_value - {_NOW}
            FROM {lease} AS lease CROSS JOIN {self.sequence} AS sequence WHERE name = $1"""
        self.make = f"""
            INSERT INTO {lease} (name, term, length_ms, renewed_at)
            VALUES ($1, -1, 0, clock_timestamp()) ON CONFLICT (name) DO NOTHING"""
        own = f"SELECT term FROM {lease} WHERE name = $1 AND holder = $2 FOR NO KEY UPDATE"
        self.renew = f"WITH own AS MATERIALIZED ({own}) SELECT term, {until} FROM own"
        # The condition within the inner SELECT has it read the sequence for a row that is locked already.
        self.take = f"""
            WITH locked AS MATERIALIZED (
                SELECT term FROM {lease} WHERE name = $1 FOR NO KEY UPDATE),
            free AS MATERIALIZED (
                SELECT term FROM locked
                WHERE (SELECT last_value < {_NOW} OR last_value = $4
                       FROM {self.sequence} WHERE locked.term IS NOT NULL))
            UPDATE {lease} AS lease
            SET holder = $2, term = free.term + 1, length_ms = $3, renewed_at = clock_timestamp()
            FROM free WHERE name = $1 RETURNING lease.term, {until}"""
        self.release = f"""
            WITH own AS MATERIALIZED ({own})
            SELECT setval({name}::regclass, {RELEASED}), pg_notify('{channel}', '') FROM own"""
        self.listen = f"LISTEN {channel}"


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
        """Looks for the sequence, and listens for releases."""
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
