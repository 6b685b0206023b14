"""Keeps the log short while something fails again and again.

:class:`Repetitions` decides, without I/O, which lines are told: the first of a trouble, then some at growing
intervals with the number of those left out, and its end. :class:`RepetitionFilter` applies that to a handler.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, field
from threading import Lock, Timer
from time import monotonic
from typing import NamedTuple

AT_ONCE = 5
"""So many lines of a kind are told whenever they come."""
SHAPES = 10
"""So many lines that differ in more than numbers are: a new cause of the same trouble is news."""
FIRST_SECONDS, LONGEST_SECONDS = 15.0, 1800.0
"""The first and the longest interval between two lines of a kind that are told; it doubles between them."""
EVENT_SECONDS = 10.0
"""The longest interval for lines about events, such as a change of leaders: news, unless they race."""
QUIET_SECONDS = (90.0, 300.0)
"""The shortest and the longest silence that ends a trouble: three times the longest pause in it.

Pauses between retries are up to a minute.
"""
MAX_KINDS = 1000
"""Kinds that are remembered at a time."""
MAX_OUTBOXES = 20
"""Outboxes whose lines of one statement are told each for itself; those of all others are one kind."""

_NUMBERS = re.compile(r"[0-9a-f]*\d[0-9a-f]*")
_SHAPE_LENGTH = 200


@dataclass(slots=True)
class _Trouble:
    """Lines of one kind that come again and again."""

    began: float
    last: float
    tell_at: float
    interval: float = FIRST_SECONDS
    longest_pause: float = 0.0
    lines: int = 0
    left_out: int = 0  # since a line was told
    left_out_in_all: int = 0
    shapes: set[str] = field(default_factory=set)
    latest: str = ""  # that was left out

    @property
    def over_at(self) -> float:
        """When it is over, if no line comes before."""
        shortest, longest = QUIET_SECONDS
        return self.last + min(max(3 * self.longest_pause, shortest), longest)


@dataclass(frozen=True, slots=True)
class Ended:
    """A trouble that is over, and of which lines were left out."""

    kind: Hashable  # what its lines had in common
    latest: str  # the last of its lines that was left out
    lines: int  # how many there were
    left_out: int  # how many of these were not told
    seconds: float  # from the first to the last


class Repetitions:
    """Decides which lines are told; for one thread at a time. Times are seconds that never go back."""

    def __init__(self) -> None:
        self._troubles: dict[Hashable, _Trouble] = {}

    def seen(self, kind: Hashable, text: str, now: float, longest: float = LONGEST_SECONDS) -> int | None:
        """Handles a line; call :meth:`ended` before.

        Returns how many lines of the kind were left out since the last one that was told; ``None`` if this
        one is to be left out, too.
        """
        trouble = self._troubles.get(kind)
        if trouble is None:
            if len(self._troubles) >= MAX_KINDS:
                del self._troubles[next(iter(self._troubles))]
            trouble = self._troubles[kind] = _Trouble(now, now, now + min(FIRST_SECONDS, longest))
        trouble.lines += 1
        trouble.longest_pause = max(trouble.longest_pause, now - trouble.last)
        trouble.last = now
        if not self._is_told(trouble, shape(text), now, longest):
            trouble.left_out += 1
            trouble.left_out_in_all += 1
            trouble.latest = text
            return None
        left_out, trouble.left_out = trouble.left_out, 0
        return left_out

    def ended(self, now: float) -> list[Ended]:
        """Forgets what is over by now, and returns that of which lines were left out."""
        over = [(kind, each) for kind, each in self._troubles.items() if each.over_at <= now]
        for kind, _ in over:
            del self._troubles[kind]
        return [
            Ended(kind, each.latest, each.lines, each.left_out_in_all, each.last - each.began)
            for kind, each in over
            if each.left_out_in_all
        ]

    def kinds(self) -> Collection[Hashable]:
        """Returns the kinds that are remembered."""
        return self._troubles.keys()

    def next_end(self) -> float | None:
        """Returns when to call :meth:`ended` next; ``None`` while no line was left out."""
        return min((each.over_at for each in self._troubles.values() if each.left_out_in_all), default=None)

    @staticmethod
    def _is_told(trouble: _Trouble, looks: str, now: float, longest: float) -> bool:
        is_news = looks not in trouble.shapes and len(trouble.shapes) < SHAPES
        if is_news:
            trouble.shapes.add(looks)
        if now >= trouble.tell_at:
            trouble.interval = min(2 * trouble.interval, longest)
            trouble.tell_at = now + trouble.interval
            return True
        return is_news or trouble.lines <= AT_ONCE


def shape(text: str) -> str:
    """Returns a text without its numbers: the same for lines that differ in a lane, a time or an id."""
    return _NUMBERS.sub("#", text[:_SHAPE_LENGTH])


class _Kind(NamedTuple):
    """What lines of one trouble have in common: the statement, and what they are about."""

    logger: str
    level: int
    template: str
    harvester: str
    outbox: str


class RepetitionFilter(logging.Filter):
    """Leaves repeated lines of a log handler out, and tells how many; add it as the handler's last filter.

    Lines are of one kind if they come from the same statement and are about the same harvester. Lines below
    info always pass, and so do those with ``extra={"always": True}``. Sets ``left_out`` of each record that
    passes, for formatters.
    """

    def __init__(self, handler: logging.Handler, clock: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._handler = handler
        self._clock = clock
        self._repetitions = Repetitions()
        self._lock = Lock()
        self._timer: Timer | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Decides whether a record is told."""
        record.left_out = 0
        if record.levelno < logging.INFO or getattr(record, "always", False):
            return True
        self.tell_ends()
        kind = _Kind(
            record.name,
            record.levelno,
            # A line of another process says from which text it was made.
            shape(getattr(record, "template", "") or str(record.msg)),
            getattr(record, "harvester", ""),
            getattr(record, "outbox", ""),
        )
        longest = EVENT_SECONDS if getattr(record, "event", "") else LONGEST_SECONDS
        with self._lock:
            kind = self._folded(kind)
            left_out = self._repetitions.seen(kind, _text(record), self._clock(), longest)
            if left_out is None:
                self._watch()
                return False
        record.left_out = left_out
        return True

    def tell_ends(self) -> None:
        """Tells which troubles are over."""
        with self._lock:
            ended = self._repetitions.ended(self._clock())
        for each in ended:
            self._handler.handle(_end_of(each))

    def _folded(self, kind: _Kind) -> _Kind:
        """Returns the kind, or the one of all outboxes where too many have the same trouble."""
        kinds = self._repetitions.kinds()
        if kind in kinds:
            return kind
        same = sum(isinstance(each, _Kind) and each[:3] == kind[:3] for each in kinds)
        return kind if same < MAX_OUTBOXES else kind._replace(harvester="", outbox="")

    def _watch(self) -> None:
        """Has the ends told when they come, if no line comes then."""
        due = self._repetitions.next_end()
        if self._timer is None and due is not None:
            self._timer = Timer(max(0.1, due - self._clock()), self._on_timer)
            self._timer.daemon = True
            self._timer.start()

    def _on_timer(self) -> None:
        self.tell_ends()
        with self._lock:
            self._timer = None
            self._watch()


def _end_of(ended: Ended) -> logging.LogRecord:
    """Makes the line that tells the end, as loud as those that it ends."""
    assert isinstance(ended.kind, _Kind)  # noqa: S101 - the filter knows no others
    kind = ended.kind
    text = "over after %s: of %d lines such as this %d were left out: %s"
    arguments = (duration(ended.seconds), ended.lines, ended.left_out, ended.latest)
    about = {"harvester": kind.harvester, "outbox": kind.outbox, "always": True}
    return logging.getLogger(kind.logger).makeRecord(
        kind.logger, kind.level, "", 0, text, arguments, None, extra=about
    )


def duration(seconds: float) -> str:
    """Returns a duration for people: ``58 min``, ``42 s``."""
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"  # noqa: PLR2004 - two minutes


def _text(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - arguments that do not fit; logging itself reports them
        return str(record.msg)
