"""What a candidate for leadership does: the election, the engine, the servers and the event handler."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from threading import Condition, Lock
from time import monotonic

from outbox_api import Candidate, ConfigError, Level
from outbox_api.support.context_thread import ContextThread, as_exception

from outbox_core.engines.runner import LaneRunner, SharedEngine
from outbox_core.events import Emitter, Event, LeaderAcquired
from outbox_core.harvest.dead_letters import DeadLetterCopies
from outbox_core.harvest.intakes import IntakeThread, intakes_of, start_intakes
from outbox_core.harvest.listening import ListenerThread
from outbox_core.lanes.plan import Plan
from outbox_core.lanes.recovery import Begun, begin_leadership
from outbox_core.leadership.leader import Leadership, Totals
from outbox_core.settings import Delivery, HarvestSettings
from outbox_core.settings.election import election_of, needs_group, with_group
from outbox_core.status.rivals import leading_lane, rival


class HarvestActions:
    """Carries out what :mod:`outbox_core.leadership.candidacy` decides; its :class:`.Actions`."""

    def __init__(
        self,
        settings: HarvestSettings,
        candidate: Candidate,
        engine: SharedEngine | None,
        totals: Totals,
        member: str,
    ) -> None:
        self.emitter = Emitter()  # calls the event handler
        self._settings = settings
        self._candidate = candidate
        self._totals = totals
        self._member = member
        self._dialect = settings.dialect.create()
        self._publisher = settings.publisher.create()
        self._election = settings.elector
        self._elector = self._election.create()
        self._engine = LaneRunner(settings, engine)
        listener = settings.listener
        self._listener = ListenerThread(listener, settings.title, totals) if listener else None
        self._leaving = False  # ordered to stop: joins no election any more
        self._joining, self._leaving_election = Lock(), Lock()
        self._conditions = Condition()
        self._intake: IntakeThread | None = None
        self._copies: DeadLetterCopies | None = None
        self._begun = Begun(0, None)

    def require(self) -> None:
        """Makes sure of all that a harvest needs."""
        self.reach_servers()
        if intakes := intakes_of(self._settings):
            with closing(intakes):
                intakes.require()
        if self._settings.delivery is Delivery.EXACTLY_ONCE:
            self._refuse_unsafe()

    def require_group(self) -> None:
        """Looks up the election's group, if the settings do not name it; see :meth:`require`."""
        if needs_group(self._election):
            self.reach_servers()

    def _refuse_unsafe(self) -> None:
        """Makes sure that the broker does what exactly-once delivery rests on."""
        for finding in self._publisher.check(transactional=True):
            if finding.level is Level.ERROR:
                raise ConfigError(f"{finding.subject}: {finding.message}; {finding.cure}")

    def close(self) -> None:
        """Frees the engine, once the lanes have ended."""
        if self._intake is not None:
            self._intake.join()
        if self._copies is not None:
            self._copies.join()
        self._engine.close()
        if self._listener is not None:
            self._listener.close()

    # --- time ---------------------------------------------------------------------------------------

    def clock(self) -> float:
        """See :meth:`.Actions.clock`."""
        return monotonic()

    def wait(self, until: Callable[[], bool], seconds: float) -> bool:
        """See :meth:`.Actions.wait`."""
        with self._conditions:
            return self._conditions.wait_for(until, seconds)

    def changed(self) -> None:
        """See :meth:`.Actions.changed`."""
        with self._conditions:
            self._conditions.notify_all()

    # --- the election -------------------------------------------------------------------------------

    def lease(self) -> float:
        """See :meth:`.Actions.lease`."""
        return self._elector.lease()

    def join_election(self) -> None:
        """See :meth:`.Actions.join_election`."""
        with self._joining:
            if not self._leaving:
                self._elector = self._election.create()
                self._elector.start(self._candidate)

    def leave_election(self, *, for_good: bool = False) -> None:
        """See :meth:`.Actions.leave_election`."""
        self._leaving |= for_good
        with self._joining:
            elector = self._elector
        with self._leaving_election:  # an elector is stopped by one thread at a time
            elector.stop()

    def resign(self, then: Callable[[], None]) -> None:
        """See :meth:`.Actions.resign`."""
        # On a thread of its own, as it waits for the lanes, which are watched meanwhile.
        ContextThread(target=self._resign, args=(then,), name="resign", daemon=True).start()

    def _resign(self, then: Callable[[], None]) -> None:
        try:
            self.leave_election()
        except BaseException as error:  # noqa: BLE001 - ends the harvest, which raises it from wait()
            self._candidate.failed(as_exception(error))
        finally:
            then()

    # --- the servers --------------------------------------------------------------------------------

    def reach_servers(self) -> None:
        """See :meth:`.Actions.reach_servers`."""
        with closing(self._dialect.connect(self._settings.affinity.create().eligible())) as table:
            self._election = with_group(self._settings.elector, table)
        self._publisher.prepare((), partitions=1)

    def become_leader(self) -> int:
        """See :meth:`.Actions.become_leader`."""
        self._begun = begin_leadership(self._settings)
        self._totals.succeed(self._begun.silence)
        for event in self._begun.settled:
            self.announce(event)
        return self._begun.token

    def find_rival(self) -> str | None:
        """See :meth:`.Actions.find_rival`."""
        lane = leading_lane(self._settings.dialect)
        return None if lane is None else rival(lane, election_of(self._election))

    # --- the engine ---------------------------------------------------------------------------------

    def warm_engine(self) -> None:
        """See :meth:`.Actions.warm_engine`."""
        self._engine.warm()

    def check_engine(self) -> None:
        """See :meth:`.Actions.check_engine`."""
        self._engine.check()

    def close_engine(self) -> None:
        """See :meth:`.Actions.close_engine`."""
        self._engine.close()

    def start_lanes(self, leadership: Leadership) -> None:
        """See :meth:`.Actions.start_lanes`."""
        begun = self._begun
        plan = Plan.of(
            self._settings,
            self._election,
            leadership.token,
            begun.silence,
            begun.taken_over,
            member=self._member,
        )
        self._intake = start_intakes(self._settings, leadership)
        if self._settings.failures.topic:
            self._copies = DeadLetterCopies(
                self._settings, leadership, self._totals, begun.identity, begun.copied_until
            )
            self._copies.start()
        self._engine.start(plan, leadership)

    def join_lanes(self, seconds: float) -> bool:
        """See :meth:`.Actions.join_lanes`."""
        return self._engine.join(seconds)

    def cancel_lanes(self) -> None:
        """See :meth:`.Actions.cancel_lanes`."""
        self._engine.cancel()

    # --- events -------------------------------------------------------------------------------------

    def announce(self, event: Event) -> None:
        """See :meth:`.Actions.announce`. Adds what only the harvest knows."""
        if isinstance(event, LeaderAcquired):
            event = replace(event, elector=self._settings.elector.driver, silence=self._begun.silence)
        if self._listener is not None:
            self._listener.notify(event)
        try:
            self.emitter.emit(event)
        except Exception as error:  # noqa: BLE001 - a broken handler ends the harvest, which raises from wait()
            self._candidate.failed(error)
