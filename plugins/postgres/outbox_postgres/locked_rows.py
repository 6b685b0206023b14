"""Rows that another transaction has locked: who has, and marks that leave out their keys until it ends.

A mark waits for a locked row for ``lockTimeout`` at most, and every other key of the lane waits with it.
After that time, marks leave out the whole key of each locked row, so that the key keeps its order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from time import monotonic

from outbox_sdk.portable import TableName

from outbox_postgres.session import Session

LOOK_INTERVAL = 1.0
"""Seconds between two looks at rows that were locked."""


def blockers(session: Session, outbox: TableName, ids: Iterable[int]) -> str:
    """Returns who has locked rows, in words: process, application, user, and since when."""
    sql = f"""
        SELECT DISTINCT a.pid, coalesce(nullif(a.application_name, ''), '?'), a.usename::text,
               to_char(a.xact_start, 'YYYY-MM-DD HH24:MI:SSOF')
        FROM {outbox} AS o
        JOIN pg_locks AS l ON l.locktype = 'transactionid' AND l.transactionid = o.xmax AND l.granted
        JOIN pg_stat_activity AS a ON a.pid = l.pid
        WHERE o.id = ANY ($1::bigint[])"""  # noqa: S608 - the name is quoted
    found = session.rows(sql, (list(ids),), "look who has locked rows")
    return (
        ", ".join(
            f"server process {pid} ({application}, user {user}, since {since or '?'})"
            for pid, application, user, since in found
        )
        or "a transaction that is not visible, perhaps a prepared one"
    )


class LockedRows:
    """Remembers for one connection which rows are locked. Does no I/O.

    Args:
        clock: Seconds on a clock that never goes back.

    Attributes:
        keys: The keys of these rows.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.keys: frozenset[str] = frozenset()
        self._clock = clock
        self._rows: dict[int, str] = {}
        self._look_due = 0.0

    @property
    def ids(self) -> list[int]:
        """The rows' ids."""
        return [*self._rows]

    def due(self) -> bool:
        """Returns whether it is time to look at the rows again."""
        return bool(self._rows) and self._clock() >= self._look_due

    def found(self, rows: Mapping[int, str]) -> None:
        """Adds rows that are locked: id → key."""
        self._note({**self._rows, **rows})

    def looked(self, ids: Collection[int]) -> None:
        """Keeps those of the rows that are still locked."""
        self._note({number: key for number, key in self._rows.items() if number in ids})

    def _note(self, rows: dict[int, str]) -> None:
        self._rows = rows
        self.keys = frozenset(rows.values())
        self._look_due = self._clock() + LOOK_INTERVAL
