"""Whether a connection waits for marked rows that others have locked, and what it logs of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from math import inf
from time import monotonic

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
