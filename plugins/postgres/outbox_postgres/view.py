"""One connection that looks at an outbox: what PostgreSQL tells in its own way."""

from __future__ import annotations

from outbox_sdk import Backlog, Origin, OriginBacklog, Upkeep
from outbox_sdk.backlog import MAX_COUNTED
from outbox_sdk.portable.view import PortableView

from outbox_postgres import statements
from outbox_postgres.intake import WaitingIntake
from outbox_postgres.layout import Layout
from outbox_postgres.origin_columns import IDS_OF_CLUSTER
from outbox_postgres.session import Session
from outbox_postgres.statements import origins_query
from outbox_postgres.upkeep import read_upkeep

MAX_PASSED = 100_000
"""How many rows of parked keys a look for the oldest of the others passes at most."""


class WaitingRows:
    """Counts the rows of one outbox.

    Args:
        session: The connection.
        layout: The outbox as found.
    """

    def __init__(self, session: Session, layout: Layout) -> None:
        self._session = session
        self._layout = layout
        self._sql = statements.WaitingStatements(layout.outbox, layout.dead_letters)

    def backlog(self, to_take_in: int) -> Backlog:
        """Returns how many records wait: counted up to ``MAX_COUNTED``, estimated beyond.

        The oldest is exact unless ``MAX_PASSED`` rows or more of parked keys lie at the head; then it is the
        age of the row behind so many, an upper bound.

        Args:
            to_take_in: How many rows an intake has yet to take in.
        """
        doing = "read the backlog"
        count = self._session.rows(self._sql.count, (MAX_COUNTED + 1,), doing)[0][0]
        rows = self._session.rows(self._sql.oldest, (self._layout.name, MAX_PASSED), doing)
        return Backlog.of(count, to_take_in, rows[0][0] if rows else None, self._estimate)

    def _estimate(self) -> int:
        doing = "estimate the backlog"
        first, last = self._session.rows(self._sql.spread, (), doing)[0]
        if first is None:
            return 0
        # The table cannot have more rows than there are ids between the first and the last.
        spread = int(last) - int(first) + 1
        known = self._session.rows(statements.ESTIMATE, (self._layout.oid,), doing)[0][0]
        if spread > IDS_OF_CLUSTER:
            return known or 0  # between the ids of several clusters there is nothing
        return min(known or spread, spread)


class PostgresView(PortableView):
    """The ``OutboxView`` of PostgreSQL. Made by ``PostgresDialect.watch``.

    Args:
        session: The connection.
        layout: The outbox as found.
        intake: The rows that are still to be taken in, if any ever are.
        origin: How rows tell where they were written, if they do.
    """

    def __init__(
        self, session: Session, layout: Layout, *, intake: WaitingIntake | None, origin: Origin | None
    ) -> None:
        super().__init__(session, layout.known)
        self._layout = layout
        self._numbered = session
        self._waiting = WaitingRows(session, layout)
        self._untaken = intake
        self._origin = origin

    def backlog(self) -> Backlog:
        """Returns how many records wait: counted up to ``MAX_COUNTED``, estimated beyond.

        Rows that an intake has yet to take in count, and have no age.
        """
        to_take_in = self._untaken.waiting(MAX_COUNTED + 1) if self._untaken else 0
        return self._waiting.backlog(to_take_in)

    def origins(self) -> list[OriginBacklog]:
        """Returns how many records of each cluster wait."""
        if self._origin is None:
            return []
        query = origins_query(str(self._layout.outbox), self._origin.column)
        rows = self._numbered.rows(query, (MAX_COUNTED + 1,), "read the rows of each cluster")
        return [
            OriginBacklog(cluster, min(count, MAX_COUNTED), exact=count <= MAX_COUNTED, oldest=oldest)
            for cluster, count, oldest in rows
        ]

    def upkeep(self) -> Upkeep:
        """Returns the outbox's dead rows, and the oldest snapshot that keeps them."""
        return read_upkeep(self._numbered, self._layout)
