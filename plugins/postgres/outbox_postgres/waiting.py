"""How many records wait in an outbox, and for how long."""

from __future__ import annotations

from outbox_sdk import Backlog
from outbox_sdk.backlog import MAX_COUNTED

from outbox_postgres import statements
from outbox_postgres.layout import Layout
from outbox_postgres.origin_columns import IDS_OF_CLUSTER
from outbox_postgres.session import Session

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
