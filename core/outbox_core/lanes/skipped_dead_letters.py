"""When dead letters that were skipped are deleted, because they have been kept for long enough."""

from __future__ import annotations

import logging

from outbox_sdk import DriverError, OutboxTable

log = logging.getLogger(__name__)

FIRST_SECONDS = 60.0
"""Seconds from the start of a lane until it looks for the first time."""

INTERVAL_SECONDS = 3600.0
"""Seconds between two looks."""

AT_ONCE = 500
"""How many are deleted at once; if there are more, the next look comes with the next heartbeat."""


class SkippedDeadLetters:
    """Deletes the skipped letters of an outbox, seldom and few at a time. One lane does it for all.

    Args:
        lane: The lane's number.
        kept: For how many seconds they are kept; ``None`` for ever.
        now: The present time in seconds.
    """

    def __init__(self, lane: int, kept: float | None, now: float) -> None:
        self._kept = None if lane else kept
        self._next = now + FIRST_SECONDS

    def forget(self, table: OutboxTable, now: float) -> int:
        """Deletes some if it is time to; returns how many.

        Raises:
            DriverError: The database refuses, or cannot be reached; the next look comes after the interval.
        """
        if self._kept is None or now < self._next:
            return 0
        self._next = now + INTERVAL_SECONDS
        try:
            deleted = table.forget_skipped(self._kept, AT_ONCE)
        except DriverError as error:
            log.warning("skipped dead letters could not be deleted: %s", error)
            raise
        if deleted == AT_ONCE:
            self._next = now
        return deleted
