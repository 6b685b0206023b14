"""One outbox's harvest: elect, fence, start the lanes, and hand over; the owner of the events.

Threads: the elector's own thread reports leadership and never touches the database; the harvest's thread
does what follows from it. :mod:`outbox_core.leadership.candidacy` decides what that is; this module carries
it out. The lanes live in the engine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from threading import Condition, Lock
from typing import Any, assert_never

from outbox_api import ConfigError, Level
from outbox_api.context_thread import ContextThread, as_exception

from outbox_core.config.election import election_of, needs_group, with_group
from outbox_core.config.settings import Delivery, HarvestSettings
from outbox_core.engines.runner import LaneRunner, SharedEngine
from outbox_core.events import Emitter, Event, EventHandler, LeaderAcquired
from outbox_core.intakes import IntakeThread, intakes_of, start_intakes
from outbox_core.lanes.plan import Plan
from outbox_core.lanes.recovery import Begun, begin_leadership
from outbox_core.leadership.candidacy import Candidacy
from outbox_core.leadership.leader import Totals
from outbox_core.leadership.requests import (
    Announce,
    BecomeLeader,
    CancelLanes,
    CheckEngine,
    CloseEngine,
    FindRival,
    JoinElection,
    JoinLanes,
    LeadershipRequest,
    LeaveElection,
    ReachServers,
    Resign,
    Result,
    StartLanes,
    Steps,
    Timeouts,
    Wait,
    WarmEngine,
)
from outbox_core.log_context import log_as
from outbox_core.members import noted_as_starting
from outbox_core.rivals import leading_lane, rival
from outbox_core.steps import run_steps

log = logging.getLogger(__name__)


class Harvest:
    """Moves one outbox's records to the broker whenever this process leads.

    Build it from settings, set an event handler if there is anything to observe, :meth:`start`,
    :meth:`wait`, :meth:`stop`. One harvest is started once.

    Args:
        settings: What to harvest, from where to where.
        engine: Where lanes run; ``None`` for an engine of its own, as the settings say.
        totals: Counts what is harvested, together with other harvests of the same outbox in this process.

    Attributes:
        totals: As given, or new ones.

    Raises:
        PluginError: A driver that the settings name is not installed.
        ConfigError: The settings ask for what does not exist.
    """

    def __init__(
        self, settings: HarvestSettings, engine: SharedEngine | None = None, totals: Totals | None = None
    ) -> None:
        self.totals = totals or Totals()
        self._settings = settings
        self._dialect = settings.dialect.create()
        self._publisher = settings.publisher.create()
        self._election = settings.elector
        self._elector = self._election.create()
        self._engine = LaneRunner(settings, engine)
        self._emitter = Emitter()
        self._leaving = False  # ordered to stop: joins no election any more
        self._joining, self._leaving_election = Lock(), Lock()
        self._changed = Condition()
        limits = settings.limits
        timeouts = Timeouts(
            drain=limits.drain_interval,
            retry=limits.io_error_backoff,
            refused=settings.failures.stop_after,
            metrics=limits.min_metrics_interval,
        )
        self._candidacy = Candidacy(timeouts, self._lease, self._notify, totals=self.totals)
        self._joined = False
        self._intake: IntakeThread | None = None
        self._thread = ContextThread(target=self._run, name="harvest", daemon=True)
        self._begun = Begun(0, None)
        self._name_of_outbox = ""
        self._log_name = "/".join(filter(None, (settings.name, settings.label)))

    @property
    def leads(self) -> bool:
        """Whether this process leads: its lanes run, or are being drained."""
        return self._candidacy.leadership is not None

    @property
    def takes_part(self) -> bool:
        """Whether this process takes part in the election, warm: it leads, or stands by."""
        return self._joined and self._candidacy.takes_part

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
        self._emitter.handler = handler

    def start(self, *, known: bool = False) -> None:
        """Makes sure of database and broker, warms the engine and joins the election.

        Args:
            known: Whether another harvest of this outbox has made sure of them before.

        Raises:
            OutboxError: Something needed cannot be reached or used; the message says what and the cure.
        """
        with self._named():
            if not known or needs_group(self._election):
                self._reach_servers()
            if not known and (intakes := intakes_of(self._settings)):
                with closing(intakes):
                    intakes.require()
            if not known and self._settings.delivery is Delivery.EXACTLY_ONCE:
                self._refuse_unsafe()
            self._start()

    def _start(self) -> None:
        self._elector = self._election.create()
        try:
            self._warm()
            self._thread.start()
            self._elector.start(self)
            self._joined = True
        except BaseException:
            try:
                self._leave_election()
            finally:
                self._end()
            raise

    def _reach_servers(self) -> None:
        with closing(self._dialect.connect(self._settings.affinity.create().eligible())) as table:
            self._election = with_group(self._settings.elector, table)
            self._name_of_outbox = table.name
        self._publisher.prepare((), partitions=1)

    def _warm(self) -> None:
        """Starts the engine, which ``outbox status`` shows."""
        slow = self._settings.engine.driver != "inline"
        with noted_as_starting(self._name_of_outbox, self._settings) if slow else nullcontext():
            self._engine.warm()

    def _refuse_unsafe(self) -> None:
        """Makes sure that the broker does what exactly-once delivery rests on."""
        for finding in self._publisher.check(transactional=True):
            if finding.level is Level.ERROR:
                raise ConfigError(f"{finding.subject}: {finding.message}; {finding.cure}")

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
        if self._emitter.is_in_handler:
            raise RuntimeError("stop() waits for event handlers to return: call it from another thread")
        self._leaving = True
        with self._named():
            try:
                self._leave_election()
            finally:
                self._end()

    def _named(self) -> AbstractContextManager[None]:
        """Has log lines say what they are about."""
        return log_as(self._log_name, outbox=self._settings.title)

    def _end(self) -> None:
        self._candidacy.end()  # the elector has had the lanes drained before
        if self._thread.ident is not None:
            self._thread.join()
        if self._intake is not None:
            self._intake.join()
        self._engine.close()

    # --- what the elector reports (its thread) ------------------------------------------------------

    def acquired(self) -> None:
        """Handles that this process was elected; see :class:`outbox_api.Candidate`."""
        self._candidacy.acquired()

    def revoked(self) -> None:
        """Handles that leadership is to be handed over: drains the lanes, then announces it."""
        self._drive(self._candidacy.revoked())

    def fenced(self) -> None:
        """Handles the loss of leadership; does not block."""
        self._candidacy.fenced()

    def failed(self, error: Exception) -> None:
        """Handles an error that ends the elector: the harvest ends with it."""
        self._candidacy.failed(error)

    # --- what the candidacy asks for ----------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._drive(self._candidacy.run())
        except BaseException as error:  # noqa: BLE001 - raised again by wait()
            self._candidacy.failed(as_exception(error))
        finally:
            self._leave_election()  # a harvest that has ended lets a standby lead

    def _drive(self, steps: Steps[Result]) -> Result:
        """Runs a generator to its end on this thread, and returns its result."""
        with self._named():
            return run_steps(steps, self._execute)

    def _execute(self, request: LeadershipRequest) -> Any:
        match request:
            case Wait(until, seconds):
                with self._changed:
                    return self._changed.wait_for(until, seconds)
            case Announce(event):
                self._emit(self._completed(event))
            case BecomeLeader():
                self._begun = begin_leadership(self._settings)
                self.totals.succeed(self._begun.silence)
                for event in self._begun.settled:
                    self._emit(event)
                return self._begun.token
            case Resign(then):
                # On a thread of its own, as it waits for the lanes, which are watched meanwhile.
                ContextThread(target=self._resign, args=(then,), name="resign", daemon=True).start()
            case LeaveElection():
                self._leave_election()
            case FindRival():
                lane = leading_lane(self._settings.dialect)
                return None if lane is None else rival(lane, election_of(self._election))
            case ReachServers():
                self._reach_servers()
            case JoinElection():
                self._join()
            case _:
                return self._execute_in_engine(request)
        return None

    def _execute_in_engine(
        self, request: CheckEngine | WarmEngine | CloseEngine | StartLanes | JoinLanes | CancelLanes
    ) -> bool | None:
        engine = self._engine
        match request:
            case CheckEngine():
                engine.check()
            case WarmEngine():
                self._warm()
            case CloseEngine():
                engine.close()
            case StartLanes(leadership):
                self._intake = start_intakes(self._settings, leadership)
                engine.start(self._plan(leadership.token), leadership)
            case JoinLanes(seconds):
                return engine.join(seconds)
            case CancelLanes():
                engine.cancel()
            case _:
                assert_never(request)
        return None

    def _lease(self) -> float:
        return self._elector.lease()

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _leave_election(self) -> None:
        with self._joining:
            elector = self._elector
        with self._leaving_election:  # an elector is stopped by one thread at a time
            elector.stop()

    def _resign(self, then: Callable[[], None]) -> None:
        try:
            self._leave_election()
        except BaseException as error:  # noqa: BLE001 - raised again by wait()
            self._candidacy.failed(as_exception(error))
        finally:
            then()

    def _join(self) -> None:
        with self._joining:
            if not self._leaving:
                self._elector = self._election.create()
                self._elector.start(self)
                log.info("joined the election again")

    def _plan(self, token: int) -> Plan:
        begun = self._begun
        return Plan.of(self._settings, self._election, token, begun.silence, begun.taken_over)

    def _completed(self, event: Event) -> Event:
        """Adds to an event what only the harvest knows."""
        if not isinstance(event, LeaderAcquired):
            return event
        return replace(event, elector=self._settings.elector.driver, silence=self._begun.silence)

    def _emit(self, event: Event) -> None:
        try:
            self._emitter.emit(event)
        except Exception as error:  # noqa: BLE001 - a broken handler ends the harvest, which raises from wait()
            self.failed(error)
