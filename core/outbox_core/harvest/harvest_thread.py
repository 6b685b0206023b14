"""One of several harvests in a process: starts it, again after an error, and again after a rest."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from random import random
from threading import Event as Flag
from threading import Lock
from time import monotonic

from outbox_api import LaneStatus, OutboxError
from outbox_api.support.context_thread import ContextThread

from outbox_core.delivery.retries import Backoff
from outbox_core.engines.runner import SharedEngine
from outbox_core.events import EventHandler
from outbox_core.harvest import Harvest
from outbox_core.leadership.leader import Totals
from outbox_core.settings import HarvestSettings
from outbox_core.text.log_context import log_as

log = logging.getLogger("outbox.harvest")

FIRST_PAUSE_SECONDS = 1.0
"""The first pause before an outbox that failed is tried again."""
LONGEST_PAUSE_SECONDS = 60.0
SEEN_SECONDS = 3.0
"""For how long a look at an outbox that rests tells that its database answers."""


class HarvestThread:
    """Harvests one outbox until it is stopped, however often that fails; or rests, and has no thread then.

    Args:
        settings: The outbox.
        engine: The engine of the process.
        handler: See :meth:`Harvest.set_event_handler`.
        delay: Seconds to wait before the first attempt, from the first :meth:`wake`; ``None`` if it may rest.
        member: See :class:`Harvest`.

    Attributes:
        rests_since: Since when it has rested under the same leader, as far as this process knows.
        seen_empty: When it was last found to rest and to be empty. Both are on the monotonic clock.
    """

    def __init__(
        self,
        settings: HarvestSettings,
        engine: SharedEngine,
        handler: EventHandler,
        delay: float | None,
        member: str = "",
    ) -> None:
        self.settings = settings
        self.totals = Totals()
        self.may_rest = delay is None  # whether it was made to rest
        self.led: int | None = None
        """The token under which it led when it was told to rest, until ``resting_lanes`` are known."""
        self.resting_lanes: Sequence[LaneStatus] = ()
        """While it rests, the lanes of this process's last leadership, unless another has begun. Whoever
        looks at outboxes that rest finds them."""
        self.rests_since, self.seen_empty = monotonic(), 0.0
        self._engine = engine
        self._handler = handler
        self._delay = delay or 0.0
        self._member = member
        self._stopping = Flag()
        self._retiring = False
        self._has_joined = False
        self._lock = Lock()
        self._harvest: Harvest | None = None
        """The present attempt, once it has started."""
        self._thread: ContextThread | None = None

    @property
    def rests(self) -> bool:
        """Whether it rests, or has yet to begin."""
        return self._thread is None

    @property
    def joined(self) -> bool:
        """Whether this process takes part in the election, or rests; also just after :meth:`give_up`."""
        return self._harvest is not None or (self.rests and self._has_joined)

    @property
    def leads(self) -> bool:
        """Whether this process leads the outbox, or has led it last and rests."""
        harvest = self._harvest
        return bool(self.resting_lanes or self.led) if harvest is None else harvest.leads

    @property
    def idle_since(self) -> float | None:
        """Since when nothing has changed, as it rests; ``None`` unless it was found empty just now."""
        is_idle = self.rests and monotonic() - self.seen_empty < SEEN_SECONDS
        return self.rests_since if is_idle else None

    @property
    def takes_part(self) -> bool:
        """Whether this process takes part in the election, warm, or would at once; as :attr:`joined`."""
        harvest = self._harvest
        return self.joined and (harvest is None or harvest.takes_part)

    def wake(self) -> None:
        """Begins to harvest, unless it does or is stopped. Returns at once."""
        named = log_as(f"{self.settings.name}/{self.settings.label}", outbox=self.settings.title)
        with self._lock, named:
            if self._thread is None and not self._stopping.is_set():
                self._retiring, self.led, self.resting_lanes = False, None, ()
                name = f"outbox-{self.settings.label}"
                thread = ContextThread(target=self._run, name=name, daemon=True)
                thread.start()
                self._thread = thread

    def rest(self) -> None:
        """Hands over and frees everything, until :meth:`wake`; does nothing in an attempt. Returns at once.

        What is committed meanwhile stays in the table, for the next leader.
        """
        with self._lock:
            harvest = self._harvest
            if harvest is None or self._retiring:
                return
        ContextThread(target=self._retire, args=(harvest,), name="rest", daemon=True).start()

    def _retire(self, harvest: Harvest) -> None:
        self._retiring, self.led = True, self.totals.token
        harvest.stop()

    def give_up(self) -> None:
        """Hands the outbox over to another process; see :meth:`Harvest.give_up`."""
        harvest = self._harvest
        if harvest is not None:
            harvest.give_up()

    def stop(self) -> None:
        """Hands over and ends; returns once it has. Idempotent."""
        with self._lock:
            self._stopping.set()
            harvest, thread = self._harvest, self._thread
        if harvest is not None:
            harvest.stop()
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        try:
            self._harvest_on()
        finally:
            with self._lock:
                self._thread, self.rests_since = None, monotonic()

    def _harvest_on(self) -> None:
        backoff, known = Backoff(FIRST_PAUSE_SECONDS, random, LONGEST_PAUSE_SECONDS), self._has_joined
        self._stopping.wait(self._delay)
        while not (self._stopping.is_set() or self._retiring):
            started = monotonic()
            try:
                self._attempt(known=known)
            except BaseException as error:
                known = False
                if monotonic() - started > LONGEST_PAUSE_SECONDS:
                    backoff.answered()
                pause, defect = backoff.failed(started), None if isinstance(error, OutboxError) else error
                log.warning("not harvested, trying again in %.1f s: %s", pause, error, exc_info=defect)
                self._stopping.wait(pause)
        if self._retiring:
            log.info("rests until there is a record")

    def _attempt(self, *, known: bool) -> None:
        """Harvests until it is stopped; ``known`` as in :meth:`Harvest.join`."""
        harvest = Harvest(self.settings, self._engine, self.totals, member=self._member)
        harvest.set_event_handler(self._handler)
        try:
            harvest.join(known=known)
            log.info("joined the election")
            with self._lock:
                if self._stopping.is_set():
                    return
                self._harvest, self._has_joined = harvest, True
            harvest.run()
        finally:
            self._harvest = None
            harvest.stop()
