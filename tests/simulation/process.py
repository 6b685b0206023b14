"""One harvester: the actions of ``outbox_core.leadership.candidacy``, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from outbox_api import DriverError
from outbox_core.delivery.recovery import Recovery, TakenOver
from outbox_core.events import Event
from outbox_core.leadership.leader import Leadership
from outbox_core.leadership.timeouts import Timeouts
from outbox_core.settings import Delivery

from .election import Election, Member
from .engine import Engine
from .greenlets import Fiber, Sleeper, Then, step
from .group import Group
from .recovery import Servers, Settings
from .scheduler import Host
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
        self.clock = self.host.clock
        self._waiting: list[Sleeper] = []
        self._candidacy = world.parts.candidacy(TIMEOUTS, self, new_leader_id=world.mint)
        self._election = election
        self.elector: Member = election.join(self)
        self.host.do(self.elector.tick)
        Fiber(self.host, self._candidacy.run, self._ended)

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
        Fiber(self.host, self._candidacy.revoked, lambda _: then())

    def fenced(self) -> None:
        self.world.tell(self, None, "is told that it leads no longer")
        self._candidacy.fenced()

    def give_up(self) -> None:
        """Hands over, and stands by again after a while."""
        self.world.tell(self, None, "is to give up")
        self._candidacy.give_up()

    # --- what the candidacy does: an ``Actions`` ----------------------------------------------------

    def lease(self) -> float:
        return self.elector.lease()

    def wait(self, until: Callable[[], bool], seconds: float) -> bool:
        end = self.clock() + seconds
        sleeper = Sleeper(self.host)
        while not until():
            if (left := end - self.clock()) <= 0:
                return False
            self._waiting.append(sleeper)
            sleeper.sleep(left)
            self._waiting.remove(sleeper)
        return True

    def changed(self) -> None:
        if self.host.runs:
            self.host.after(0.0, self._wake)

    def _wake(self) -> None:
        for sleeper in self._waiting:
            sleeper.wake()

    def announce(self, event: Event) -> None:
        self.world.tell(self, None, "announces %s", event)

    def become_leader(self) -> int:
        servers = Servers(self.world, self.host, self.settings)
        begin = partial(
            self.world.parts.take_over, lanes=self.lanes, holder=self.host.name, recovery=self.recovery
        )
        taken: TakenOver = servers.recover(begin)
        self.world.audit.counts["lanes settled"] += len(taken.recovered)
        return taken.token

    def find_rival(self) -> str:
        return ""  # another process, as far as is known

    def reach_servers(self) -> None:
        step(self._reach_servers)

    def resign(self, then: Callable[[], None]) -> None:
        self.world.audit.counts["resignations"] += 1
        self._do(lambda: self.elector.leave(then))

    def leave_election(self) -> None:
        step(lambda then: self.elector.leave(partial(then, None)))

    def join_election(self) -> None:
        self.elector = self._election.join(self)
        self._do(self.elector.tick)

    def warm_engine(self) -> None:
        Sleeper(self.host).sleep(self.world.chance.random() * WARM_SECONDS)

    def check_engine(self) -> None:
        """Engines do not die here."""

    def close_engine(self) -> None:
        self.engine.close()

    def start_lanes(self, leadership: Leadership) -> None:
        self.world.audit.counts["terms"] += 1
        told = "leads with token %s and %s lanes, %s"
        self.world.tell(self, None, told, leadership.token, self.lanes, self.delivery)
        self._do(partial(self.engine.start, leadership))

    def join_lanes(self, seconds: float) -> bool:
        Sleeper(self.host).sleep(seconds)
        return not self.engine.busy

    def cancel_lanes(self) -> None:
        self.engine.cancel()

    def _do(self, action: Callable[[], object]) -> None:
        """Does what begins threads, on the scheduler's stack."""

        def act(then: Then) -> None:
            action()
            then(None)

        step(act)

    def _reach_servers(self, then: Then) -> None:
        broker, database = self.world.broker, self.world.database
        away = database.down or broker.is_cut_off(self.host) or broker.away_until > self.world.scheduler.now
        error = DriverError("no answer", retryable=True) if away else None
        self.host.after(self.world.chance.random() * 0.1, then, error)

    def _ended(self, result: object) -> None:
        raise Violation("I9", f"a harvester has ended though nothing refused it for long: {result}")

    def kill(self) -> None:
        """Ends the process; of its workers some live on until they run out of lease."""
        self.host.kill()
        for group in self.groups:
            if group.host is not self.host and self.world.chance.random() < 0.5:
                group.host.kill()
