"""One of several harvests in a process: starts it, and starts it again after an error."""

from __future__ import annotations

import logging
from threading import Event as Flag
from threading import Lock
from time import monotonic

from outbox_sdk import OutboxError
from outbox_sdk.context_thread import ContextThread

from outbox_core.config.settings import HarvestSettings
from outbox_core.engines.runner import SharedEngine
from outbox_core.events import EventHandler
from outbox_core.harvest import Harvest
from outbox_core.leadership.leader import Totals
from outbox_core.log_context import log_as

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 1.0
"""The pause before an outbox that failed is tried again; twice as long after each further failure."""
LONGEST_PAUSE_SECONDS = 60.0


class HarvestThread:
    """Harvests one outbox until it is stopped, however often that fails.

    Args:
        settings: The outbox.
        engine: The engine of the process.
        handler: See :meth:`Harvest.set_event_handler`.
        delay: Seconds to wait before the first attempt.

    Attributes:
        settings: As given.
        totals: What is harvested, in all attempts.
    """

    def __init__(
        self,
        settings: HarvestSettings,
        engine: SharedEngine,
        handler: EventHandler,
        delay: float,
    ) -> None:
        self.settings = settings
        self.totals = Totals()
        self._engine = engine
        self._handler = handler
        self._delay = delay
        self._stopping = Flag()
        self._lock = Lock()
        self._harvest: Harvest | None = None
        """The present attempt, once it has started."""
        with log_as(f"{settings.name}/{settings.label}", outbox=settings.title):
            self._thread = ContextThread(target=self._run, name=f"outbox-{settings.label}", daemon=True)
            self._thread.start()

    @property
    def joined(self) -> bool:
        """Whether this process takes part in the election; also just after :meth:`give_up`."""
        return self._harvest is not None

    @property
    def leads(self) -> bool:
        """Whether this process leads the outbox."""
        harvest = self._harvest
        return harvest is not None and harvest.leads

    @property
    def takes_part(self) -> bool:
        """Whether this process takes part in the election, warm; see :attr:`Harvest.takes_part`."""
        harvest = self._harvest
        return harvest is not None and harvest.takes_part

    def give_up(self) -> None:
        """Hands the outbox over to another process; see :meth:`Harvest.give_up`."""
        harvest = self._harvest
        if harvest is not None:
            harvest.give_up()

    def stop(self) -> None:
        """Hands over and ends; returns once it has. Idempotent."""
        with self._lock:
            self._stopping.set()
            harvest = self._harvest
        if harvest is not None:
            harvest.stop()
        self._thread.join()

    def _run(self) -> None:
        pause, told = FIRST_PAUSE_SECONDS, ""
        self._stopping.wait(self._delay)
        while not self._stopping.is_set():
            started = monotonic()
            try:
                self._attempt()
            except Exception as error:
                if monotonic() - started > LONGEST_PAUSE_SECONDS:
                    pause, told = FIRST_PAUSE_SECONDS, ""
                # The same error is a warning once, as it may last for days.
                level = logging.DEBUG if str(error) == told else logging.WARNING
                told, defect = str(error), None if isinstance(error, OutboxError) else error
                log.log(level, "not harvested, trying again in %g s: %s", pause, error, exc_info=defect)
                self._stopping.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _attempt(self) -> None:
        """Harvests until it is stopped.

        Raises:
            Exception: What has ended the harvest.
        """
        harvest = Harvest(self.settings, self._engine, self.totals)
        harvest.set_event_handler(self._handler)
        try:
            harvest.start()
            log.info("joined the election")
            with self._lock:
                if self._stopping.is_set():
                    return
                self._harvest = harvest
            harvest.wait()
        finally:
            self._harvest = None
            harvest.stop()
