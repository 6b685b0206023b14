"""Which source a lane takes rows from next: its own cluster's at every look, others when they are due.

A source is one condition of the affinity (:data:`outbox_api.ColumnIs`), named by its index. The first, 0, is
the cluster's own. A look is a mark or a selection, of one source. Each source has a size and a backoff of its
own, so that a look at an empty one does not slow down another.

Records of several sources may have the same key. Order holds among those of one source: each look begins at
the source's head, and a lane never has two looks out. Between sources there is no order to keep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outbox_api import ColumnIs

from outbox_core.delivery.batch_size import BatchSize

EMPTY_SECONDS = 1.0
"""The pause after a look at another cluster's rows that found none; less if their age is less than
``AGE_SHARE`` times that."""
AGE_SHARE = 20
"""See ``EMPTY_SECONDS``: a takeover is at most a twentieth later than it could be."""
LOOK_SHARE = 50
"""After such a look the next waits at least this many times its duration: it may read many rows to find none,
and own rows wait meanwhile."""
REST_SECONDS = 60.0
"""The longest such wait: a single look may have been slow for any reason."""


def ages(conditions: Sequence[ColumnIs]) -> tuple[float, ...]:
    """Returns the least age of the rows of each source, in seconds."""
    return tuple(each.older_than for each in conditions)


@dataclass(slots=True)
class _Source:
    size: BatchSize  # the size and the time of its next look
    pause: float  # seconds until the next look after one that found nothing, at least; 0 for the own source
    rest: float = 0.0
    """Until when it is left alone in any case, as the last look has taken long and found nothing."""
    full: bool = False  # whether the last look reached its limit
    turn: int = 0  # the number of the last look

    def due(self, *, excludes: bool) -> float:
        return max(self.size.due, self.size.passing_due) if excludes else self.size.due


class Sources:
    """The sources of one lane, their sizes, and whose turn it is. At most one look is out.

    Args:
        ages: The least age of the rows of each source, in seconds; none if there is one source of all rows.
        new_size: Makes the size of a source.
    """

    def __init__(self, ages: Sequence[float], new_size: Callable[[], BatchSize]) -> None:
        pauses = [0.0, *(min(EMPTY_SECONDS, age / AGE_SHARE) for age in ages[1:])]
        self._sources = [_Source(new_size(), pause) for pause in pauses]
        self._looking, self._since = 0, 0.0
        self._turn = 0
        self._own_waits = True  # the last look was at another source, so the own one is next if it is due
        self._wanted: int | None = None

    @property
    def look(self) -> tuple[int, int]:
        """The source of the look that was begun last, and its limit in records."""
        return self._looking, self._sources[self._looking].size.limit

    @property
    def limit(self) -> int:
        """The largest limit of any source's next look."""
        return max(each.size.limit for each in self._sources)

    @property
    def backlog(self) -> bool:
        """Whether the last look at any source reached its limit."""
        return any(each.full for each in self._sources)

    def due(self, *, excludes: bool = False) -> float:
        """Returns when the next look is due; one that excludes keys may be due later."""
        return min(each.due(excludes=excludes) for each in self._sources)

    def begin(self, now: float, *, excludes: bool = False) -> None:
        """Begins a :attr:`look`, answered by :meth:`found`, or forgotten when the next one begins.

        The own source and the others take turns while they are due; the others among themselves, too.
        """
        due = [number for number, each in enumerate(self._sources) if each.due(excludes=excludes) <= now]
        if self._wanted is not None and self._wanted in due:
            number, self._wanted = self._wanted, None
        elif due[0] == 0 and (self._own_waits or len(due) == 1):
            number = 0
        else:
            number = min((each for each in due if each), key=lambda each: self._sources[each].turn)
        self._own_waits = number != 0
        self._turn += 1
        self._looking, self._since = number, now
        self._sources[number].turn = self._turn

    def found(self, now: float, *, full: bool, empty: bool, grow: bool = True, passed: bool = False) -> None:
        """Adapts to what the look has found; see :meth:`BatchSize.marked`.

        ``passed``: it may have passed excluded rows up to the end of the table.
        """
        source, seconds = self._sources[self._looking], now - self._since
        source.size.marked(now, full=full, empty=empty, grow=grow)
        source.full = full
        if self._looking:
            source.rest = now + min(LOOK_SHARE * seconds, REST_SECONDS) if empty else now
            if empty:
                source.size.due = max(source.size.due, source.rest, now + source.pause)
        if passed:
            source.size.passed(now, seconds)

    def hurry(self, now: float) -> None:
        """Makes all sources due, the own one first, as rows of any may be found again.

        Those of another cluster that took long to be found empty still rest.
        """
        for source in self._sources:
            source.size.due = max(now, source.rest)
        self._own_waits = True

    def gather_own(self, until: float) -> None:
        """Makes the own source due at this time, unless there is a backlog of it."""
        own = self._sources[0]
        if not own.full:
            own.size.due = until

    def repeat(self, now: float, source: int, *, anew: bool) -> None:
        """Makes the next look one at ``source`` again: some of what it found last was given up.

        ``anew``: that look has the limit of a first look.
        """
        self._wanted = source
        size = self._sources[source].size
        size.due = size.passing_due = now
        if anew:
            size.begin_anew()

    def cut(self, source: int, records: int) -> None:
        """Handles that only the first ``records`` of what the last look at ``source`` found can be used."""
        self._sources[source].size.begin_anew(records)
        self._sources[source].full = True

    def shrink(self, source: int) -> None:
        """Makes the next looks at a source smaller."""
        self._sources[source].size.shrink()
