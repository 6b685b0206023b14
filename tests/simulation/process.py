"""One harvester: follows its elector, raises the fence, runs the lanes, as ``outbox_core.harvest`` does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from outbox_core.config.settings import Delivery
from outbox_core.delivery.recovery import Recovery
from outbox_core.leadership.leader import Leadership
from outbox_sdk import OutboxError

from .database import FAILED
from .election import Election, Member
from .fencing import ReadNotes
from .group import Group
from .recovery import Driver, Settings
from .scheduler import Host

if TYPE_CHECKING:
    from .world import World

WATCH_SECONDS = 0.1
CANCEL_SECONDS = 1.0
DRAIN_SECONDS = 0.5
RETRY_SECONDS = 0.1


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
        office: Whether its elector says that it leads.
        groups: The groups of its term, and earlier runs of them that may still be about.
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
        self.workers = workers
        self.delivery = delivery
        self.settings = settings
        self.host = Host(f"process {number}", world.scheduler)
        self.office = False
        self.leadership: Leadership | None = None
        self.groups: list[Group] = []
        self.elector: Member = election.join(self)
        self._begun = False
        self._boot = 0
        self._cancel_at = float("inf")
        self._drained: Callable[[], None] | None = None
        self.host.do(self.elector.tick)

    # --- what the elector tells ---------------------------------------------------------------------

    def acquired(self) -> None:
        self.world.tell(self, None, "is elected")
        self.office = True
        self._lead()

    def revoked(self, then: Callable[[], None]) -> None:
        """Lets the lanes settle, for a while; ``then`` is called when they have."""
        self.world.tell(self, None, "is to hand over")
        self.office = False
        if self.leadership is None:
            then()
            return
        self.leadership.drain()
        self._drained = then
        self.host.after(DRAIN_SECONDS, self._drained_in_time)

    def _drained_in_time(self) -> None:
        if self._drained is not None:
            if self.leadership is not None:
                self.leadership.stop()
            self._tell_drained()

    def _tell_drained(self) -> None:
        if (then := self._drained) is not None:
            self._drained = None
            then()

    def fenced(self) -> None:
        self.world.tell(self, None, "is told that it leads no longer")
        self.office = False
        if self.leadership is not None:
            self.leadership.fence("not confirmed in time")

    # --- leading ------------------------------------------------------------------------------------

    def _lead(self) -> None:
        if self._begun or not self.office:
            return
        if self.elector.lease() <= 0:
            self.host.after(WATCH_SECONDS, self._lead)
            return
        self._begun = True
        world = self.world
        self._boot = world.database.boot
        world.wire.call(self.host, world.parts.bump(world.database, self.lanes), self._bumped, self._boot)

    def _bumped(self, token: Any) -> None:
        world = self.world
        if token is FAILED or not self.office:
            self._lead_later()
        elif world.scenario.transacts:
            world.wire.call(
                self.host, ReadNotes(world.database), lambda noted: self._settle(token, noted), self._boot
            )
        else:
            self._begin(token)

    def _settle(self, token: int, noted: Any) -> None:
        if noted is FAILED:
            self._lead_later()
        else:
            steps = self.recovery(token).recover(noted)
            driver = Driver(self.world, self.host, self.settings)
            driver.run(steps, lambda result: self._settled(token, result))

    def _settled(self, token: int, result: dict[int, int] | OutboxError) -> None:
        if self.office and not isinstance(result, OutboxError):
            self.world.audit.counts["lanes settled"] += len(result)
            self._begin(token)
        else:
            self._lead_later()

    def recovery(self, token: int) -> Recovery:
        """Returns how the lanes of a term begin."""
        return self.world.parts.recovery(self.settings.outbox, self.lanes, token, self.delivery)

    def _lead_later(self) -> None:
        self._begun = False
        self.host.after(RETRY_SECONDS, self._lead)

    def _begin(self, token: int) -> None:
        self.world.audit.counts["terms"] += 1
        self.world.tell(self, None, "leads with token %s and %s lanes, %s", token, self.lanes, self.delivery)
        self.leadership = leadership = Leadership(token, self._lease)
        self._cancel_at = float("inf")
        spread = max(self.workers, 1)
        self.groups = [
            Group(self, leadership, self._place(number), number, list(range(number, self.lanes, spread)))
            for number in range(min(spread, self.lanes))
        ]
        self._watch()

    def _lease(self) -> float:
        return self.elector.lease() if self.office else 0.0

    def _place(self, number: int) -> Host:
        if not self.workers:
            return self.host
        self.world.runs += 1
        return Host(f"{self.host.name}/worker {number}.{self.world.runs}", self.world.scheduler)

    def _watch(self) -> None:
        leadership, now = self.leadership, self.host.clock()
        if leadership is None:
            return
        if leadership.over and all(group.over or not group.host.alive for group in self.groups):
            self._finish(leadership)
            return
        if leadership.stopped:
            self._cancel_at = min(self._cancel_at, now + CANCEL_SECONDS)
            if now > self._cancel_at:
                self._cancel()
        elif not leadership.over:
            self._replace_dead(leadership)
        self.host.after(WATCH_SECONDS, self._watch)

    def _finish(self, leadership: Leadership) -> None:
        self.world.tell(self, None, "has ended its term: %s", leadership.lost or "told to")
        self.leadership = None
        self._begun = False
        self._tell_drained()
        self.host.after(RETRY_SECONDS if leadership.lost else 0.0, self._lead)

    def _cancel(self) -> None:
        for group in self.groups:
            if group.host is self.host:
                group.control.stopped = True
            else:
                group.host.kill()

    def _replace_dead(self, leadership: Leadership) -> None:
        """Starts groups anew whose worker has died."""
        for index, group in enumerate(self.groups):
            if not group.host.alive and group.host is not self.host:
                self.groups[index] = Group(
                    self, leadership, self._place(group.number), group.number, group.numbers
                )

    def start_copy(self, group: Group) -> None:
        """Starts a second run of a group, as an engine does that has given up on the first."""
        if self.leadership is group.leadership and not group.leadership.over and group in self.groups:
            self.groups[self.groups.index(group)] = Group(
                self, group.leadership, self._place(group.number), group.number, group.numbers
            )

    def kill(self) -> None:
        """Ends the process; of its workers some live on until they run out of lease."""
        self.host.kill()
        for group in self.groups:
            if group.host is not self.host and self.world.chance.random() < 0.5:
                group.host.kill()
