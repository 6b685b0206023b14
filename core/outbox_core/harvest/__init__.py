"""One outbox's harvest: elect, fence, start the lanes, and hand over.

Threads: one of the elector's reports leadership and never touches the database; the harvest's thread does
what follows from it. :mod:`outbox_core.leadership.candidacy` decides what that is, and
:mod:`outbox_core.harvest.harvest_actions` carries it out. The lanes live in the engine.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from threading import Lock

from outbox_api.support.context_thread import ContextThread, as_exception

from outbox_core.engines.runner import SharedEngine
from outbox_core.events import EventHandler
from outbox_core.harvest.harvest_actions import HarvestActions
from outbox_core.leadership.candidacy import Candidacy
from outbox_core.leadership.leader import Totals
from outbox_core.leadership.timeouts import Timeouts
from outbox_core.settings import HarvestSettings
from outbox_core.text.log_context import log_as


class Harvest:
    """Moves one outbox's records to the broker whenever this process leads.

    Build it from settings, set an event handler if there is anything to observe, :meth:`start`,
    :meth:`wait`, :meth:`stop`. One harvest is started once.

    Args:
        settings: What to harvest, from where to where.
        engine: Where lanes run; ``None`` for an engine of its own, as the settings say.
        totals: Counts what is harvested, together with other harvests of the same outbox in this process.
        member: How this process notes itself among the members; heartbeats say that it leads.

    Attributes:
        totals: As given, or new ones.

    Raises:
        PluginError: A driver that the settings name is not installed.
        ConfigError: The settings ask for what does not exist.
    """

    def __init__(
        self,
        settings: HarvestSettings,
        engine: SharedEngine | None = None,
        totals: Totals | None = None,
        *,
        member: str = "",
    ) -> None:
        self.totals = totals or Totals()
        self._settings = settings
        self._actions = HarvestActions(settings, self, engine, self.totals, member)
        limits = settings.limits
        timeouts = Timeouts(
            drain=limits.drain_interval,
            retry=limits.io_error_backoff,
            refused=settings.failures.stop_after,
            metrics=limits.min_metrics_interval,
        )
        self._candidacy = Candidacy(timeouts, self._actions, totals=self.totals)
        self._joined = False
        self._running = Lock()  # held while it harvests
        self._thread = ContextThread(target=self._run, name="harvest", daemon=True)
        self._log_name = "/".join(filter(None, (settings.name, settings.label)))

    @property
    def leads(self) -> bool:
        """Whether this process leads: its lanes run, or are being drained."""
        return self._candidacy.leadership is not None

    @property
    def takes_part(self) -> bool:
        """Whether this process takes part in the election, warm: it leads, or stands by."""
        return self._joined and self._candidacy.takes_part

    @property
    def aside(self) -> str:
        """Why this process takes no part in the election for a while; empty if it does, or is starting."""
        return self._candidacy.aside

    def give_up(self) -> None:
        """Hands leadership to a process that stands by, without ending; does nothing without leadership.

        Takes part in the election again after five seconds. Returns at once.
        """
        self._candidacy.give_up()

    def set_event_handler(self, handler: EventHandler) -> None:
        """Registers what is called for each event, one at a time; call it before :meth:`start`.

        A handler may block on ``LeaderRevoked`` only. What it raises ends the harvest. It must not call
        :meth:`stop`, which waits for it.
        """
        self._actions.emitter.handler = handler

    def start(self) -> None:
        """Makes sure of database and broker, warms the engine, joins the election, and harvests.

        Raises:
            OutboxError: Something needed cannot be reached or used; the message says what and the cure.
        """
        self.join()
        try:
            self._thread.start()
        except BaseException:
            self.stop()
            raise

    def join(self, *, known: bool = False) -> None:
        """Does what :meth:`start` does, for a caller that has a thread for :meth:`run`.

        Args:
            known: Whether another harvest of this outbox has made sure of database and broker before.

        Raises:
            OutboxError: See :meth:`start`.
        """
        with self._named():
            if known:
                self._actions.require_group()
            else:
                self._actions.require()
            try:
                self._actions.warm_engine()
                self._actions.join_election()
                self._joined = True
            except BaseException:
                try:
                    self._actions.leave_election()
                finally:
                    self._end()
                raise

    def run(self) -> None:
        """Harvests on the calling thread, until :meth:`stop`.

        Raises:
            Exception: What else ended it.
        """
        self._run()
        if self._candidacy.error is not None:
            raise self._candidacy.error

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the harvest to end, up to ``timeout`` seconds; returns whether it has.

        Raises:
            Exception: What ended it, when that was not :meth:`stop`.
        """
        self._thread.join(timeout)
        if self._thread.is_alive():
            return False
        if self._candidacy.error is not None:
            raise self._candidacy.error
        return True

    def stop(self) -> None:
        """Hands over to a successor at once: drains the lanes, leaves the election, frees the engine.

        Draining takes ``drain_interval`` seconds at most, ending what does not settle two more. Idempotent.

        Raises:
            RuntimeError: Called from an event handler, which the harvest waits for.
        """
        if self._actions.emitter.is_in_handler:
            raise RuntimeError("stop() waits for event handlers to return: call it from another thread")
        with self._named():
            try:
                self._actions.leave_election(for_good=True)
            finally:
                self._end()

    def _named(self) -> AbstractContextManager[None]:
        """Has log lines say what they are about."""
        return log_as(self._log_name, outbox=self._settings.title)

    def _end(self) -> None:
        self._candidacy.end()  # the elector has had the lanes drained before
        if self._thread.ident is not None:
            self._thread.join()
        with self._running:
            self._actions.close()

    # --- what the elector reports (its thread) ------------------------------------------------------

    def acquired(self) -> None:
        """Handles that this process was elected; see :class:`outbox_api.Candidate`."""
        self._candidacy.acquired()

    def revoked(self) -> None:
        """Handles that leadership is to be handed over: drains the lanes, then announces it."""
        with self._named():
            self._candidacy.revoked()

    def fenced(self) -> None:
        """Handles the loss of leadership; does not block."""
        self._candidacy.fenced()

    def failed(self, error: Exception) -> None:
        """Handles an error that ends the elector: the harvest ends with it."""
        self._candidacy.failed(error)

    def _run(self) -> None:
        with self._running, self._named():
            try:
                self._candidacy.run()
            except BaseException as error:  # noqa: BLE001 - raised again by run() or wait()
                self._candidacy.failed(as_exception(error))
            finally:
                self._actions.leave_election()  # a harvest that has ended lets a standby lead
