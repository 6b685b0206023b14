"""How a portable outbox purges and resets marked rows: around those that others have locked, if it can."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from math import inf
from time import monotonic
from typing import Any, TypeVar

from outbox_api.base.record import Batch
from outbox_api.portable.by_ids import ChangeByIds
from outbox_api.portable.runs import change_rows
from outbox_api.portable.session import LockTimeout, Session
from outbox_api.portable.statements import Statements
from outbox_api.seams.outbox_table import Changed

IMPATIENT_SECONDS = 60.0
"""For how long a connection that has met a locked row purges and resets without a wait."""

MAX_NAMED = 5
"""How many locked rows a message names."""


class LockWaits:
    """Remembers for one connection which marked rows it met locked. Does no I/O, but for the log.

    Args:
        name: The outbox's name, for the log.
        log: Where it logs that the first row is locked, and that none is any more.
        clock: Seconds on a clock that never goes back.
        lockers: Returns who has locked rows, in words; empty where the database does not tell.
    """

    def __init__(
        self,
        name: str,
        log: logging.Logger,
        clock: Callable[[], float] = monotonic,
        lockers: Callable[[Sequence[int]], str] = lambda _: "",
    ) -> None:
        self._name = name
        self._log = log
        self._clock = clock
        self._lockers = lockers
        self._impatient_until = -inf
        self._locked: frozenset[int] = frozenset()  # those that were met and not passed since

    @property
    def permitted(self) -> bool:
        """Whether the next statement may wait for locked rows, until the lock time-out."""
        return self._clock() >= self._impatient_until

    def timed_out(self) -> None:
        """Handles a statement that waited in vain."""
        self._impatient_until = self._clock() + IMPATIENT_SECONDS

    def met(self, ids: Sequence[int], locked: Sequence[int]) -> None:
        """Handles a statement that changed some rows, but for those that are locked."""
        before, self._locked = self._locked, self._locked.difference(ids).union(locked)
        if locked:
            self.timed_out()
        if self._locked and not before:
            lockers = self._lockers(locked)
            self._log.warning(
                "%s: others have locked %s after a mark; their keys wait, and every other goes on%s",
                *(self._name, named(locked), f"; locked by {lockers}" if lockers else ""),
            )
        elif before and not self._locked:
            self._log.info("%s: no marked row is locked any more", self._name)


def named(ids: Collection[int]) -> str:
    """Names rows in a message."""
    listed = sorted(ids)
    more = f" and {len(listed) - MAX_NAMED:,} more" if len(listed) > MAX_NAMED else ""
    return f"row{'s' * (len(listed) > 1)} {', '.join(map(str, listed[:MAX_NAMED]))}{more}"


log = logging.getLogger("outbox.portable")

Result = TypeVar("Result")


class Releasing:
    """Purges and resets marked rows, within the caller's transaction, which holds the fence."""

    def __init__(self, session: Session, sql: Statements) -> None:
        self._session = session
        self._sql = sql
        self._waits = LockWaits(sql.name, log)

    def around_locked(self, transaction: Callable[[bool], Result]) -> Result:
        """Runs a transaction; once more without a wait for locked rows, if it waited for one in vain."""
        if self._waits.permitted:
            try:
                return transaction(True)
            except LockTimeout:
                if not self._sql.free:
                    raise
                self._waits.timed_out()
        return transaction(False)

    def free(self, ids: Sequence[int]) -> list[int]:
        """Locks and returns those of the rows that nobody has locked."""
        assert self._sql.free  # noqa: S101 - or locked rows are waited for
        return [int(row[0]) for row in self._session.fetch_by_ids(self._sql.free, ids)]

    def change(
        self, change: ChangeByIds, ids: Sequence[int], leader: object, token: int, *, waits: bool
    ) -> Changed:
        """Purges or resets rows; if it does not wait, none that others have locked or that is behind such."""
        free = ids if waits else self.free(ids)
        chosen = free if len(free) >= len(ids) else self._in_turn(change, ids, free, leader)
        rows = change_rows(self._session, change, Batch.of(sorted(set(chosen))), leader=leader, token=token)
        if rows >= len(ids):
            self._waits.met(ids, ())
            return Changed(rows)
        query, marked = (
            (self._sql.carried, {"leader": leader}) if change.condition else (self._sql.present, {})
        )
        left = [int(row[0]) for row in self._session.fetch_by_ids(query, ids, **marked)]
        kept = set(chosen).intersection(left)
        locked = sorted(set(left).difference(kept))
        self._waits.met(ids, sorted(set(left).difference(free)))
        return Changed(rows, locked, sorted(kept))

    def _in_turn(
        self, change: ChangeByIds, ids: Sequence[int], free: Sequence[int], leader: object
    ) -> list[int]:
        """Returns the free rows that are behind no locked one of their key."""
        query, marked = (
            (self._sql.carried_keys, {"leader": leader}) if change.condition else (self._sql.head_keys, {})
        )
        found = {int(number): key for number, key in self._session.fetch_by_ids(query, ids, **marked)}
        chosen, locked = set(free), set[Any]()
        for number in sorted(found):
            if number not in chosen:
                locked.add(found[number])
            elif found[number] in locked:
                chosen.remove(number)
        return sorted(chosen)

    def locked(self, ids: Sequence[int], free: Sequence[int], leader: object) -> list[int]:
        """Returns those of the rows that carry a leader id and are not free."""
        rest = sorted(set(ids).difference(free))
        locked = [int(row[0]) for row in self._session.fetch_by_ids(self._sql.carried, rest, leader=leader)]
        self._waits.met(ids, locked)
        return locked
