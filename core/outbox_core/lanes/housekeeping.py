"""What a leader removes from the tables beside the outbox when its time has come."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial

from outbox_api import DriverError, OutboxTable
from outbox_api.seams.kept import Tended

log = logging.getLogger("outbox.lanes")

FIRST_SECONDS = 60.0
"""Seconds from the start of a lane until it looks for the first time, and between looks while hindered."""

INTERVAL_SECONDS = 3600.0
"""Seconds between two looks."""

AT_ONCE = 500
"""How many skipped dead letters are deleted at once; if there are more, the next look comes with the next
heartbeat."""

KEPT_AT_ONCE = 5000
"""How many kept records are deleted at once, likewise: some thousands in a tenth of a second."""

_LINE = "outbox %s: %s: %s"
_SKIPPED = "skipped dead letters cannot be deleted"
_KEPT = "kept records cannot be removed in time"
_DAYS = "partitions cannot be made and removed"

_told: set[tuple[str, str, str]] = set()
"""The arguments of lines that were written: a process says each once, however often its lanes start anew."""


class Housekeeping:
    """Deletes skipped dead letters after ``skipped`` seconds, or never; tends kept records and partitions.

    Seldom, few at a time, and in one lane.

    Attributes:
        about: What heartbeats say: under ``overdue`` what should be gone, and why it is not.
    """

    def __init__(self, lane: int, skipped: float | None, now: float) -> None:
        self.about: Mapping[str, str] = {}
        self._skipped = skipped
        self._next = float("inf") if lane else now + FIRST_SECONDS

    def work(self, table: OutboxTable, now: float) -> None:
        """Does some of it if it is time to. What the database refuses for good is said once, and left.

        Raises:
            DriverError: The connection may be broken; the next look comes after the usual time.
        """
        if now < self._next:
            return
        self._next = now + INTERVAL_SECONDS
        skipped, more_skipped = self._forget(table)
        kept, more_kept = _tend(table, _KEPT, partial(table.tend_kept, KEPT_AT_ONCE))
        _, more_days = _tend(table, _DAYS, table.tend_days)
        overdue = "; ".join(filter(None, (skipped, kept)))
        self.about = {"overdue": overdue} if overdue else {}
        if more_skipped or more_kept or more_days:
            self._next = now
        elif overdue:  # what helps is to be seen soon
            self._next = now + FIRST_SECONDS

    def _forget(self, table: OutboxTable) -> tuple[str, bool]:
        """Returns what is overdue, and whether there is more to do."""
        if self._skipped is None:
            return "", False
        try:
            return "", table.forget_skipped(self._skipped, AT_ONCE) == AT_ONCE
        except DriverError as error:
            return _refused(table, _SKIPPED, error), False


def _tend(table: OutboxTable, subject: str, tend: Callable[[], Tended]) -> tuple[str, bool]:
    """Does some of a work, and says what hinders it; returns what is overdue, and whether there is more."""
    try:
        tended = tend()
    except DriverError as error:
        return _refused(table, subject, error), False
    for fault in tended.faults:
        _tell(table, subject, fault)
    if not tended.faults:  # what comes back is news
        _told.difference_update([each for each in _told if each[:2] == (table.name, subject)])
    return f"{subject}: {'; '.join(tended.faults)}" if tended.overdue else "", tended.more


def _refused(table: OutboxTable, subject: str, error: DriverError) -> str:
    """Returns what the refusal means; says it, once."""
    if error.retryable:
        log.warning(_LINE, table.name, subject, error)
        raise error
    _tell(table, subject, str(error))
    return f"{subject}: {error}"


def _tell(table: OutboxTable, subject: str, fault: str) -> None:
    told = (table.name, subject, fault)
    if told not in _told:
        _told.add(told)
        log.warning(_LINE, *told)
