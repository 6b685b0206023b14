"""Which waiting records need not be sent, as a later one of their key waits too; and when to look for them.

Only records of topics that the settings name, and only while a backlog waits. A look reads an outline of the
next rows behind the one before, and ends at the end of the table; the next begins at its head.

A lane does nothing else at the database between the outline and the deletion that follows from it. So what it
leaves out of the outline is all that it has in its hands.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from outbox_api import Batch, Outline

from outbox_core.delivery.paused import NOTHING, Paused

MOST_ROWS = 50_000
"""How many rows a look reads at most, and the first: the more, the more of them are superseded."""
LEAST_ROWS = 1000
"""How many a look reads at least."""
LONG_SECONDS = 1.0
"""After a look that took longer, the next reads half as many rows: no mark goes on meanwhile."""
SHORT_SECONDS = 0.5
"""After a look that was full and took no longer, the next reads twice as many rows."""
WORTHWHILE = 0.1
"""Which share of the rows of a look must have been superseded, so that the next is not rarer."""
MOST_REST = 64
"""After a look the next waits for at most this many times its duration; at least for once its duration, so
that marks have half of the time."""
QUIET_SECONDS = 10.0
"""After so many seconds without a superseded record a lane says how many there were."""


class Coalesce(NamedTuple):
    """Read an outline, and delete what is superseded in it; see :meth:`outbox_api.OutboxTable.outline`.

    Attributes:
        after: The id behind which it begins.
        limit: How many rows to read.
        topics: Patterns of the topics.
        keys: The keys that are left out: they have failed, and were not delivered since.
        paused: What is paused, which is left out, too: its records wait as they are.
    """

    after: int
    limit: int
    topics: Sequence[str]
    keys: Collection[str] = frozenset()
    paused: Paused = NOTHING

    def superseded(self, outline: Outline) -> Batch:
        """Returns the rows that a later one of the same topic, key and partition supersedes."""
        later, ids = set[tuple[str, str, int | None]](), list[int]()
        for row in reversed(outline.rows):
            if row.key in self.keys or self.paused.has(row.topic):
                continue
            if (state := row[1:]) in later:
                ids.append(row.id)
            else:
                later.add(state)
        return Batch.of(ids[::-1], outline.newest)


@dataclass(frozen=True, slots=True)
class Coalesced:
    """What came of a look: the outline's last id and number of rows, and how many it has superseded."""

    last: int
    rows: int
    superseded: int


class Coalescing:
    """When one lane looks, and from which row on. Its caller tells whether a backlog waits.

    Args:
        topics: Patterns of topics; none for never.

    Attributes:
        superseded: How many records were, since :meth:`quiet` said so last.
    """

    def __init__(self, topics: Sequence[str] = ()) -> None:
        self.topics = topics
        self.superseded = 0
        self._after = 0
        self._limit = MOST_ROWS
        self._rest = 1
        self._due = self._began = 0.0
        self._quiet_at = float("inf")

    def due(self, *, backlog: bool) -> float:
        """Returns when the next look is due."""
        return self._due if self.topics and backlog else float("inf")

    def begin(
        self,
        now: float,
        keys: Collection[str],
        batches: Sequence[Batch] = (),
        paused: Paused = NOTHING,
    ) -> Coalesce:
        """Begins a look, answered by :meth:`ended`, or forgotten when the next begins.

        Args:
            now: The time.
            keys: The keys to leave out.
            batches: What the lane has in its hands. The look begins behind all of them: before that there are
                only these, and rows of keys that have failed.
            paused: Topics to leave out, too.
        """
        self._began = now
        after = max((last for batch in batches for _, last in batch.runs), default=0)
        return Coalesce(max(self._after, after), self._limit, self.topics, frozenset(keys), paused)

    def ended(self, now: float, found: Coalesced) -> bool:
        """Takes what came of a look; returns whether it has superseded the first records for a while."""
        seconds, full = now - self._began, found.rows >= self._limit
        self._after = found.last if full else 0
        if seconds > LONG_SECONDS:
            self._limit = max(LEAST_ROWS, self._limit // 2)
        elif full and seconds <= SHORT_SECONDS:
            self._limit = min(MOST_ROWS, self._limit * 2)
        worthwhile = found.superseded and found.superseded >= WORTHWHILE * found.rows
        self._rest = 1 if worthwhile else min(MOST_REST, 2 * self._rest)
        self._due = now + self._rest * seconds
        is_first = bool(found.superseded) and not self.superseded
        self.superseded += found.superseded
        if found.superseded:
            self._quiet_at = now + QUIET_SECONDS
        return is_first

    def quiet(self, now: float) -> int:
        """Returns how many records were superseded once none is any more, and forgets them; 0 before."""
        if now < self._quiet_at:
            return 0
        self._quiet_at = float("inf")
        number, self.superseded = self.superseded, 0
        return number
