"""One outbox's harvest: elect, fence, start the lanes, and hand over; the owner of the events.

Threads: the elector's own thread tells of leadership and never touches the database; the harvest's thread
does what follows from it. The lanes live in the engine.

    standby --acquired--> bump the fence --> lanes run --revoked--> drain --> standby
                                                 |---fenced, or a lane finds a newer token--> stop --> standby
                                                 |---lanes not heard, or not to be ended--> leave the
                                                     election, make the engine anew, join again --> standby
"""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import replace
from math import ceil
from threading import Event as Flag
from threading import Lock, Thread, get_ident
from time import monotonic
from uuid import uuid4

from outbox_sdk import ConfigError, DriverError, LeadershipLost, Level, OutboxError

from outbox_core.config.election import with_group
from outbox_core.config.settings import Delivery, HarvestSettings
from outbox_core.engines.base import Engine
from outbox_core.engines.inline import InlineEngine
from outbox_core.events import (
    Event,
    EventHandler,
    LeaderAcquired,
    LeaderFenced,
    LeaderRevoked,
    MeterRead,
)
from outbox_core.lanes.plan import Plan
from outbox_core.lanes.recovery import recover_lanes
from outbox_core.leadership.leader import SILENT_SECONDS, Leadership
from outbox_core.leadership.protocol import REPORT_SECONDS
from outbox_core.metrics import LaneMetrics, Meter

log = logging.getLogger(__name__)

CHECK_SECONDS = 1.0
"""How often a standby makes sure that it could lead."""
STOP_SECONDS = 2.0
"""How long lanes that were told to stop at once are waited for before the engine cancels them."""
CANCEL_SECONDS = 8.0
"""How long cancelled lanes are waited for before they are left to the fence, and the engine is made anew."""
JOIN_SECONDS = 5.0
"""The pause after an engine or an election that could not be had."""


class Harvest:
    """Moves one outbox's records to the broker whenever this process leads.

    Build it from settings, set an event handler if there is anything to observe, :meth:`start`,
    :meth:`wait`, :meth:`stop`. One harvest is started once.

    Args:
        settings: What to harvest, from where to where.

    Raises:
        PluginError: A driver that the settings name is not installed.
        ConfigError: The settings ask for what does not exist.
    """

    def __init__(self, settings: HarvestSettings) -> None:
        self._settings = settings
        self._limits = settings.limits
        self._dialect = settings.dialect.create()
        self._publisher = settings.publisher.create()
        self._election = settings.elector
        self._elector = self._election.create()
        self._engine = _engine(settings)
        self._handler: EventHandler | None = None
        self._emitting = Lock()
        self._emitter = 0  # the thread that is in the handler
        self._office = Flag()  # set while the elector says that this process leads
        self._leaving = False  # told to stop: joins no election any more
        self._joining = Lock()
        self._resigned = False  # the office was given up for the engine's sake
        self._ending = Flag()
        self._idle = Flag()  # set while no term runs
        self._idle.set()
        self._leadership: Leadership | None = None
        self._past = LaneMetrics()
        self._meter = Meter(self._limits.min_metrics_interval, monotonic())
        self._error: Exception | None = None
        self._thread = Thread(target=self._run, name="harvest", daemon=True)

    def set_event_handler(self, handler: EventHandler) -> None:
        """Registers what is called for each event, one at a time; call it before :meth:`start`.

        A handler may block on ``LeaderRevoked`` only. What it raises ends the harvest. It must not call
        :meth:`stop`, which waits for it.
        """
        self._handler = handler

    def start(self) -> None:
        """Makes sure of database and broker, warms the engine and joins the election.

        Raises:
            OutboxError: Something needed cannot be reached or used; the message says what and the cure.
        """
        with closing(self._dialect.connect(self._settings.affinity.create().eligible())) as table:
            self._election = with_group(self._settings.elector, table)
        self._elector = self._election.create()
        self._publisher.prepare((), partitions=1)
        if self._settings.delivery is Delivery.EXACTLY_ONCE:
            self._refuse_unsafe()
        try:
            self._engine.warm()
            self._thread.start()
            self._elector.start(self)
        except BaseException:
            self._end()
            raise

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
        if self._error is not None:
            raise self._error
        return True

    def stop(self) -> None:
        """Hands over to a successor at once: drains the lanes, leaves the election, frees the engine.

        Draining takes ``drain_interval`` seconds at most, ending what does not settle two more. Idempotent.

        Raises:
            RuntimeError: Called from an event handler, which the harvest waits for.
        """
        if self._emitter == get_ident():
            raise RuntimeError("stop() waits for event handlers to return: call it from another thread")
        self._leaving = True
        with self._joining:
            elector = self._elector
        elector.stop()
        self._end()

    def _end(self) -> None:
        self._ending.set()
        self._office.set()  # wakes the harvest's thread
        if (leadership := self._leadership) is not None:
            leadership.stop()  # the elector has had it drained before
        if self._thread.ident is not None:
            self._thread.join()
        self._engine.close()

    # --- what the elector tells (its thread) --------------------------------------------------------

    def acquired(self) -> None:
        """Takes that this process leads now; see :class:`outbox_sdk.Candidate`."""
        self._office.set()

    def revoked(self) -> None:
        """Takes that leadership is to be handed over: lets the lanes settle, then tells the observers."""
        self._office.clear()
        if (leadership := self._leadership) is not None:
            leadership.drain()
        # Also without a term: the fence may be about to be raised, and not behind a successor's back.
        if not self._idle.wait(self._limits.drain_interval):
            log.warning("lanes did not settle within %.1f s", self._limits.drain_interval)
            if leadership is not None:
                leadership.stop()
        self._emit(LeaderRevoked())

    def fenced(self) -> None:
        """Takes that leadership is gone; only raises flags, so that it cannot block."""
        self._office.clear()
        if (leadership := self._leadership) is not None:
            leadership.fence("leadership was not confirmed in time")

    def failed(self, error: Exception) -> None:
        """Takes that the elector can go on no longer: the harvest ends with its error."""
        self._error = self._error or error
        self._office.clear()
        if (leadership := self._leadership) is not None:
            leadership.fence(f"the harvest ends: {error}")
        self._ending.set()
        self._office.set()

    # --- the harvest's own thread -------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                self._engine.check()  # a standby whose engine has died is none
                if self._office.wait(CHECK_SECONDS) and not self._ending.is_set():
                    self._lead()
                if self._resigned:
                    self._stand_by_anew()
        except Exception as error:  # noqa: BLE001 - handed to whoever waits
            self._error = self._error or error
        finally:
            self._elector.stop()  # a harvest that has ended lets a standby lead

    def _stand_by_anew(self) -> None:
        """Makes the engine anew once the election is left, whatever became of it, and joins again."""
        self._elector.stop()
        self._office.clear()
        self._engine.close()
        self._resigned = False
        while not self._ending.is_set():
            try:
                self._engine.warm()
                self._join()
            except OutboxError as error:
                log.warning("cannot stand by, trying again in %.0f s: %s", JOIN_SECONDS, error)
                self._engine.close()
                self._ending.wait(JOIN_SECONDS)
            else:
                return

    def _join(self) -> None:
        with self._joining:
            if not self._leaving:
                self._elector = self._election.create()
                self._elector.start(self)
                log.info("joined the election again")

    def _lead(self) -> None:
        """Leads for one term: bumps the fence, runs the lanes, sees them end."""
        self._idle.clear()
        try:
            leadership = self._begin()
            if leadership is not None:
                self._watch(leadership)
        finally:
            if self._leadership is not None and not self._leadership.over:
                self._leadership.stop()  # whatever was started ends, also when starting failed halfway
            self._leadership = None
            self._idle.set()

    def _begin(self) -> Leadership | None:
        """Bumps the fence, settles lanes of old, starts its own; ``None`` when leadership went meanwhile."""
        lanes = self._limits.send_concurrency
        refused_since: float | None = None
        while self._office.is_set() and not self._ending.is_set():
            if self._elector.lease() <= 0:  # this process stood still: the office may be somebody else's
                self._ending.wait(REPORT_SECONDS)
                continue
            try:
                with closing(self._dialect.connect()) as table:
                    plan = self._plan(table.bump(lanes, self._settings.name), lanes)
                    noted = table.transactional_lanes()
                recover_lanes(plan, noted)
            except LeadershipLost as error:
                log.info("another process has raised the fence: %s", error)
                self._ending.wait(self._limits.io_error_backoff)
                continue
            except DriverError as error:
                refused_since = None if error.retryable else refused_since or monotonic()
                if refused_since and monotonic() - refused_since >= self._settings.failures.stop_after:
                    raise  # another process may be able to
                log.warning("cannot begin to lead, trying again: %s", error)
                self._ending.wait(self._limits.io_error_backoff)
                continue
            self._leadership = leadership = Leadership(plan.token, self._lease)
            if self._ending.is_set() or not self._office.is_set():
                return None  # leadership went while the fence was raised, and nobody told this term
            self._emit(LeaderAcquired(uuid4(), plan.token))
            self._engine.start(plan, leadership)
            return leadership
        return None

    def _lease(self) -> float:
        return self._elector.lease() if self._office.is_set() else 0.0

    def _plan(self, token: int, lanes: int) -> Plan:
        settings = self._settings
        share = ceil(self._limits.max_in_flight_records / lanes)
        return Plan(
            outbox=settings.outbox,
            token=token,
            lanes=lanes,
            dialect=settings.dialect,
            affinity=settings.affinity,
            publisher=settings.publisher,
            limits=replace(self._limits, max_in_flight_records=share),
            failures=settings.failures,
            delivery=settings.delivery,
        )

    def _watch(self, leadership: Leadership) -> None:
        """Passes on what the lanes report, until they have all ended or cannot be ended."""
        cancel_at = float("inf")
        while not self._engine.join(REPORT_SECONDS):
            self._report(leadership)
            self._engine.check()
            if not leadership.over and (silent := leadership.silent()):
                self._resign(
                    leadership, f"lane groups {silent} have not been heard for {SILENT_SECONDS:.0f} s"
                )
            if leadership.stopped and cancel_at == float("inf"):
                cancel_at = monotonic() + STOP_SECONDS
                if leadership.lost:
                    self._emit(LeaderFenced(leadership.lost))
            if monotonic() > cancel_at + CANCEL_SECONDS:
                self._resign(leadership, "lanes do not end")
                break
            if monotonic() > cancel_at:
                self._engine.cancel()
        self._report(leadership)
        self._past += leadership.metrics().ended()
        if leadership.refusal is not None:
            raise leadership.refusal
        if leadership.lost:
            if cancel_at == float("inf"):  # the lanes ended before their loss was seen here
                self._emit(LeaderFenced(leadership.lost))
            # Another token was seen although the elector may still name us: let the other side be heard.
            self._ending.wait(self._limits.io_error_backoff)

    def _resign(self, leadership: Leadership, reason: str) -> None:
        """Has this process leave the election, draining what can be drained, so that a standby leads."""
        log.warning("cannot lead: %s", reason)
        self._resigned = True
        leadership.drain()
        Thread(target=self._hand_over, args=(leadership,), name="resign", daemon=True).start()

    def _hand_over(self, leadership: Leadership) -> None:
        self._elector.stop()  # on a thread of its own, as it waits for the lanes, which are watched meanwhile
        leadership.stop()

    def _report(self, leadership: Leadership) -> None:
        for event in leadership.take_events():
            self._emit(event)
        if stats := self._meter.read(monotonic(), (self._past, leadership.metrics())):
            self._emit(MeterRead(stats))

    def _emit(self, event: Event) -> None:
        log.debug("%s", event)
        if self._handler is None:
            return
        try:
            with self._emitting:
                self._emitter = get_ident()
                try:
                    self._handler(event)
                finally:
                    self._emitter = 0
        except Exception as error:  # noqa: BLE001 - a broken handler ends the harvest, which raises from wait()
            self.failed(error)


def _engine(settings: HarvestSettings) -> Engine:
    if settings.engine.driver == "inline":
        return InlineEngine()
    # PySpark is imported only when it is the engine.
    from outbox_core.engines.spark.engine import SparkEngine  # noqa: PLC0415

    return SparkEngine(settings)
