"""Decides which outboxes a process gives up, so that leaderships spread over the processes, without I/O.

Every process competes for all of its outboxes, so that a crash is made up for by whoever stands by. Where a
process came to lead more outboxes than others, it hands some over. It knows of each other process how many it
leads, and nothing else; that suffices, as a hand-over that went to the wrong process is followed by another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

STEADY_SECONDS = 6.0
"""For how long processes and leaderships must not have changed before anything is given up."""
RETURNED_SECONDS = 30.0
"""An outbox that is led by this process again so soon was wanted by nobody else."""
UNWANTED_SECONDS = 600.0
"""For how long such an outbox is not given up again."""


class Rebalance:
    """What one process knows of the others.

    Times are seconds on any clock that never goes back.
    """

    def __init__(self, member: str) -> None:
        self._member = member
        self._seen: tuple[object, ...] = ()
        self._steady_since = 0.0
        self._leaving: set[str] = set()
        self._left: dict[str, float] = {}
        self._unwanted: dict[str, float] = {}

    def to_give_up(self, led: Sequence[str], members: Mapping[str, int], now: float) -> Sequence[str]:
        """Returns which outboxes to give up now."""
        self._note_returned(led, now)
        led = [outbox for outbox in led if outbox not in self._leaving]
        counts = {**members, self._member: len(led)}
        seen = (sorted(counts), sum(counts.values()))
        if seen != self._seen:
            self._seen, self._steady_since = seen, now
        if now - self._steady_since < STEADY_SECONDS:
            return ()
        movable = [outbox for outbox in led if now >= self._unwanted.get(outbox, now)]
        given_up = movable[: excess(self._member, counts)]
        if given_up:
            self._steady_since = now
            self._leaving |= set(given_up)
        return given_up

    def _note_returned(self, led: Sequence[str], now: float) -> None:
        for outbox in self._leaving - set(led):
            self._leaving.discard(outbox)
            self._left[outbox] = now
        for outbox in set(led) & set(self._left):
            if now - self._left.pop(outbox) < RETURNED_SECONDS:
                self._unwanted[outbox] = now + UNWANTED_SECONDS
        # Outboxes come and go: what matters no longer is forgotten.
        self._left = {outbox: at for outbox, at in self._left.items() if now - at < RETURNED_SECONDS}
        self._unwanted = {outbox: until for outbox, until in self._unwanted.items() if now < until}


def excess(member: str, counts: Mapping[str, int]) -> int:
    """Returns how many outboxes ``member`` leads beyond its share.

    The share is the mean, rounded up. If all are within it and one leads at least two less than the most
    loaded, then the first of these by name has one too many.
    """
    mine = counts[member]
    share = ceil(sum(counts.values()) / len(counts))
    if mine > share:
        return mine - share
    most = max(counts.values())
    first = min(name for name, count in counts.items() if count == most)
    uneven = most <= share and most - min(counts.values()) > 1
    return int(uneven and member == first)
