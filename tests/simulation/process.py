"""One harvester: carries out what ``outbox_core.leadership.candidacy`` asks for, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from outbox_api import DriverError
from outbox_core.config.settings import Delivery
from outbox_core.delivery.recovery import Recovery, TakenOver
from outbox_core.leadership.leader import Leadership
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
    StartLanes,
    Timeouts,
    Wait,
    WarmEngine,
)

from .election import Election, Member
from .engine import Engine
from .group import Group
from .recovery import Servers, Settings
from .scheduler import Host
from .threads import Reply, Thread
from .trail import Violation

if TYPE_CHECKING:
    from .world import World

TIMEOUTS = Timeouts(
    drain=0.5,
    retry=0.1,
    refused=float("inf"),
    metrics=5.0,
    stop=0.5,
    cancel=2.0,
    join=0.5,
    silent=2.5,
    start=4.0,
    unacknowledged=3.0,
    unacknowledged_again=12.0,
    yielded=1.0,
    forgiven=60.0,
)
"""Shorter than the real ones, as is everything here."""
WARM_SECONDS = 1.0
"""How long an engine takes at most until it can start lanes."""


class Process:
    """One process of the harvester, from its start until it is killed.

    Args:
        world: The world it lives in.
        number: Its number; a process started after a crash has the number of its forerunner.
        lanes: How many lanes it uses when it leads.
        workers: How many workers it spreads them over; 0 for threads of its own.
        election: Says who leads.
        delivery: What its lanes deliver.
        settings: How it is configured otherwise.

    Attributes:
        elector: Its present part in the election.
        engine: Runs its lanes.
    """

    def __init__(
        self,
        world: World,
        number: int,
        lanes: int,
        workers: int,
        *,
        election: Election,
        delivery: Delivery,
        settings: Settings,
    ) -> None:
        self.world = world
        self.number = number
        self.lanes = lanes
        self.delivery = delivery
        self.settings = settings
        self.host = Host(f"process {number}", world.scheduler)
        self.engine = Engine(self, workers)
        self._waiting: list[tuple[Wait, Reply]] = []
        self._candidacy = world.parts.candidacy(
            TIMEOUTS,
            self._lease,
            self._changed,
            clock=self.host.clock,
            new_leader_id=world.mint,
        )
        self._election = election
        self.elector: Member = election.join(self)
        self.host.do(self.elector.tick)
        Thread(self.host, self._candidacy.run(), self._execute, self._ended)

    @property
    def elected(self) -> bool:
        """Whether its elector says that it leads."""
        return self._candidacy.elected

    @property
    def groups(self) -> list[Group]:
        """The groups of its term, or of the one before."""
        return self.engine.groups

    def recovery(self, token: int) -> Recovery:
        """Returns how the lanes of a term begin."""
        return self.world.parts.recovery(self.lanes, token, self.delivery)

    # --- what the elector reports -------------------------------------------------------------------

    def acquired(self) -> None:
        self.world.tell(self, None, "is elected")
        self._candidacy.acquired()

    def revoked(self, then: Callable[[], None]) -> None:
        """Lets the lanes settle, for a while; ``then`` is called when they have."""
        self.world.tell(self, None, "is to hand over")
        Thread(self.host, self._candidacy.revoked(), self._execute, lambda _: then())

    def fenced(self) -> None:
        self.world.tell(self, None, "is told that it leads no longer")
        self._candidacy.fenced()

    def give_up(self) -> None:
        """Hands over, and stands by again after a while."""
        self.world.tell(self, None, "is to give up")
        self._candidacy.give_up()

    # --- what the candidacy asks for ----------------------------------------------------------------

    def _execute(self, request: LeadershipRequest, reply: Reply) -> None:
        match request:
            case Wait():
                self._wait(request, reply)
            case Announce(event):
                self.world.tell(self, None, "announces %s", event)
                reply(None)
            case BecomeLeader():
                begin = partial(
                    self.world.parts.take_over,
                    lanes=self.lanes,
                    holder=self.host.name,
                    recovery=self.recovery,
                )
                servers = Servers(self.world, self.host, self.settings)
                servers.run(begin, lambda result: self._taken_over(result, reply))
            case Resign(then):
                self.world.audit.counts["resignations"] += 1
                self.elector.leave(then)
                reply(None)
            case LeaveElection():
                self.elector.leave(lambda: reply(None))
            case FindRival():
                reply("")  # another process, as far as is known
            case ReachServers():
                self._reach_servers(reply)
            case JoinElection():
                self.elector = self._election.join(self)
                self.host.do(self.elector.tick)
                reply(None)
            case _:
                self._execute_in_engine(request, reply)

    def _execute_in_engine(
        self,
        request: CheckEngine | WarmEngine | CloseEngine | StartLanes | JoinLanes | CancelLanes,
        reply: Reply,
    ) -> None:
        match request:
            case StartLanes(leadership):
                self._start_lanes(leadership)
            case CancelLanes():
                self.engine.cancel()
            case CloseEngine():
                self.engine.close()
            case JoinLanes(seconds):
                self.host.after(seconds, lambda: reply(not self.engine.busy))
                return
            case WarmEngine():
                self.host.after(self.world.chance.random() * WARM_SECONDS, reply, None)
                return
        reply(None)

    def _taken_over(self, result: Any, reply: Reply) -> None:
        if isinstance(result, TakenOver):
            self.world.audit.counts["lanes settled"] += len(result.recovered)
            reply(result.token)
        else:
            reply(result)

    def _start_lanes(self, leadership: Leadership) -> None:
        self.world.audit.counts["terms"] += 1
        told = "leads with token %s and %s lanes, %s"
        self.world.tell(self, None, told, leadership.token, self.lanes, self.delivery)
        self.engine.start(leadership)

    def _wait(self, request: Wait, reply: Reply) -> None:
        if request.until():
            reply(True)
            return
        waiting = (request, reply)
        self._waiting.append(waiting)
        self.host.after(request.seconds, self._go_on, waiting)

    def _reach_servers(self, reply: Reply) -> None:
        broker, database = self.world.broker, self.world.database
        away = database.down or broker.is_cut_off(self.host) or broker.away_until > self.world.scheduler.now
        error = DriverError("no answer", retryable=True) if away else None
        self.host.after(self.world.chance.random() * 0.1, reply, error)

    def _lease(self) -> float:
        return self.elector.lease()

    def _changed(self) -> None:
        self.host.after(0.0, self._look)

    def _look(self) -> None:
        for waiting in [each for each in self._waiting if each[0].until()]:
            self._go_on(waiting)

    def _go_on(self, waiting: tuple[Wait, Reply]) -> None:
        if waiting in self._waiting:
            self._waiting.remove(waiting)
            request, reply = waiting
            reply(request.until())

    def _ended(self, result: object) -> None:
        raise Violation("I9", f"a harvester has ended though nothing refused it for long: {result}")

    def kill(self) -> None:
        """Ends the process; of its workers some live on until they run out of lease."""
        self.host.kill()
        for group in self.groups:
            if group.host is not self.host and self.world.chance.random() < 0.5:
                group.host.kill()
