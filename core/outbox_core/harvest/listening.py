"""Hands events to a listener, on a thread of its own: one that fails or hangs holds nothing up."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from queue import Full, Queue
from threading import Event as Flag
from threading import Lock

from outbox_api import DriverError, HarvestEvent, Listener, OutboxError
from outbox_api.support.context_thread import ContextThread

from outbox_core.events import Event, LeaderAcquired
from outbox_core.leadership.leader import Totals
from outbox_core.settings import Choice

log = logging.getLogger("outbox.listener")

MOST_WAITING = 1000
"""Events that wait for a listener; those that come then are dropped."""
PAUSE_SECONDS = 2.0
"""Before an event is tried again."""
END_SECONDS = 2.0
"""How long the end of a harvest waits for a listener that works to take what waits."""


class ListenerThread:
    """The listener of one harvest, and the events that wait for it."""

    def __init__(self, choice: Choice[Listener], outbox: str, totals: Totals) -> None:
        self._name = choice.driver
        self._listener = choice.create()
        self._wanted = frozenset(self._listener.events)
        self._outbox = outbox
        self._totals = totals
        self._purged_before = 0  # by earlier leaderships
        self._waiting: Queue[HarvestEvent | None] = Queue(MOST_WAITING)
        self._lock = Lock()
        self._noted = self._taken = 0  # events
        self._dropped = 0  # of these; the log has not told of them yet
        self._fails = False
        self._ended = Flag()
        self._thread = ContextThread(target=self._run, name="listener", daemon=True)

    def notify(self, event: Event) -> None:
        """Notes an event for the listener, if it wants to know; returns at once."""
        name, at = type(event).__name__, datetime.now(UTC)
        if name not in self._wanted:
            return
        purged = self._totals.metrics().purged
        with self._lock:
            self._noted += 1
            if isinstance(event, LeaderAcquired):
                self._purged_before = purged
            happened = HarvestEvent(name, at, self._outbox, purged - self._purged_before, asdict(event))
            if self._thread.ident is None:
                self._thread.start()
            try:
                self._waiting.put_nowait(happened)
            except Full:
                self._dropped += 1

    def close(self) -> None:
        """Waits a moment until the listener has taken what waits, and ends. Idempotent."""
        if self._thread.ident is None or self._ended.is_set():
            return
        with suppress(Full):
            self._waiting.put_nowait(None)
            self._thread.join(0 if self._fails else END_SECONDS)
        self._ended.set()
        with suppress(Full):  # it works on what waits, and sees then that it is to end
            self._waiting.put_nowait(None)
        if left := self._noted - self._taken:
            log.warning("listener '%s' has not taken %d events at the end", self._name, left)

    def _run(self) -> None:
        while not self._ended.is_set() and (happened := self._waiting.get()) is not None:
            while not self._ended.is_set() and not self._takes(happened):
                self._ended.wait(PAUSE_SECONDS)

    def _takes(self, happened: HarvestEvent) -> bool:
        """Hands an event over; returns whether the next one is due."""
        try:
            self._listener.handle(happened)
        except BaseException as error:
            again = isinstance(error, DriverError) and error.retryable
            if not self._fails:
                defect = None if isinstance(error, OutboxError) else error
                log.warning("listener '%s' does not take events: %s", self._name, error, exc_info=defect)
            self._fails = True
            if again:
                return False
            with self._lock:
                self._dropped += 1
            return True
        with self._lock:
            dropped, self._dropped = self._dropped, 0
            self._taken += 1 + dropped
        if self._fails or dropped:
            log.warning("listener '%s' takes events; %d events were dropped", self._name, dropped)
        self._fails = False
        return True
