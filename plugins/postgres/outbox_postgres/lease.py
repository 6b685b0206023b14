"""The lease that candidates compete for: a row says who leads, and a sequence says until when.

A renewal writes the sequence, which PostgreSQL changes in place, and locks the row. Neither makes a version
of a row, so a snapshot that is held open keeps nothing alive (ADR 30). Changes of a sequence are not undone
and are seen at once, so each statement that writes it locks the row first, and reads the sequence afterwards.
Each is a transaction of its own, which a process that freezes does not hold open.
"""
# ruff: noqa: S608 - names are quoted by QuotedName, and every value is a parameter

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

from outbox_api import AccessDenied, DriverError
from outbox_api.portable.lease import LeaseStatements, PortableLease
from outbox_api.portable.sources import quoted
from outbox_api.portable.statements import Statements

from outbox_postgres.ddl import sequence_of
from outbox_postgres.faults import grant, init_and
from outbox_postgres.layout import Layout
from outbox_postgres.options import QuotedName
from outbox_postgres.session import Session

_NOW = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
RELEASED = 1
"""What the sequence says of a lease that was released: a time long ago. It is also its first value."""


class SequenceStatements(LeaseStatements):
    """The statements whose times are in a sequence; what it says stands for when the lease was renewed.

    Attributes:
        take: Gives the lease to ``{holder}`` if the sequence still says ``{seen}``; returns the number.
        release: Ends the lease of ``{holder}``, and wakes those who listen.
        listen: Listens for that.
        allowed: Returns whether the user may use the sequence; null if there is none.
    """

    def __init__(self, sql: Statements, sequence: QuotedName) -> None:
        super().__init__(sql)
        lease, until = sql.lease, quoted(sql.idiom, sequence)
        name, channel = sql.idiom.literal(until), f"outbox_lease_{crc32(sql.name.encode()):08x}"
        prolonged = f"setval({name}::regclass, {_NOW} + {{length}})"
        locked = f"SELECT term, holder FROM {lease} WHERE name = {{name}} FOR NO KEY UPDATE"
        own = f"SELECT FROM {lease} WHERE name = {{name}} AND holder = {{holder}} FOR NO KEY UPDATE"
        self.look = f"""
            SELECT holder, (length_ms - last_value + {_NOW}) / 1000.0, length_ms, term, last_value
            FROM {lease} CROSS JOIN {until} WHERE name = {{name}}"""
        self.make = f"{self.make} RETURNING {prolonged}"
        self.renew = f"WITH own AS MATERIALIZED ({own}) SELECT {prolonged} FROM own"
        # The condition within the inner SELECT has it read the sequence for a row that is locked already.
        self.take = f"""
            WITH locked AS MATERIALIZED ({locked}), free AS MATERIALIZED (
                SELECT term + (holder IS DISTINCT FROM {{holder}})::int AS term FROM locked
                WHERE (SELECT last_value = {{seen}} FROM {until} WHERE locked.term IS NOT NULL))
            UPDATE {lease} AS lease
            SET holder = {{holder}}, term = free.term, length_ms = {{length}}, renewed_at = clock_timestamp()
            FROM free WHERE name = {{name}} RETURNING lease.term, {prolonged}"""
        self.release = f"""
            WITH own AS MATERIALIZED ({own})
            SELECT setval({name}::regclass, {RELEASED}), pg_notify('{channel}', '') FROM own"""
        self.listen = f"LISTEN {channel}"
        privileges = (f"has_sequence_privilege({name}, '{each}')" for each in ("SELECT", "UPDATE"))
        self.allowed = f"SELECT CASE WHEN to_regclass({name}) IS NOT NULL THEN {' AND '.join(privileges)} END"


class PostgresLease(PortableLease):
    """The ``WatchedLease`` of PostgreSQL. Made by ``PostgresDialect.lease``."""

    def __init__(self, session: Session, layout: Layout) -> None:
        sql, sequence = Statements(session.idiom, layout.tables), sequence_of(layout.outbox)
        super().__init__(session, sql)
        session.begins = False
        self._numbered = session
        self._statements: SequenceStatements = SequenceStatements(sql, sequence)
        needs = f"the elector lease needs the sequence {sequence} in {session.address}"
        granted = grant(("SELECT", "UPDATE"), f"SEQUENCE {sequence}", layout.user)
        with session.transaction("look at the lease", reads=True):
            [(allowed,)] = session.fetch(self._statements.allowed)
            if allowed:
                session.execute_ddl(self._statements.listen)
        if allowed is None:
            raise DriverError(f"{needs}, which does not exist: {init_and(granted)}", retryable=False)
        if not allowed:
            raise AccessDenied(f"{needs}; let somebody who may run: {granted}")

    def wait(self, seconds: float) -> None:
        """Waits until the lease is released or has run out, or ``seconds`` have passed."""
        with self._numbered.translated("wait for the lease"):
            timeout = max(0.0, min(seconds, self._left))
            for _ in self._numbered.connection.notifies(timeout=timeout, stop_after=1):
                pass

    def _take_free(self, wanted: Mapping[str, Any], seen: Sequence[Any]) -> int | None:
        found = self._session.query("take the lease", self._statements.take, **wanted, seen=seen[-1])
        return int(found[0][0]) if found else None
