"""What attempts at a lane of either kind have in common: the loop, the fence, and how they end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from outbox_core.delivery.at_least_once import MarkPurgeReset
from outbox_core.delivery.exactly_once import TransactionalMarkPurge
from outbox_core.leadership.protocol import BEAT_SECONDS
from outbox_sdk import Fence

from .broker import Producer
from .desk import Work
from .scheduler import Host
from .trail import Session

if TYPE_CHECKING:
    from .group import Group
    from .world import World


class Attempt(ABC):
    """One attempt, from entering the lane until its group is told to stop or something fails.

    Args:
        group: The group it runs in.
        number: The lane's number.

    Attributes:
        producer: Its session.
        fence: Its right to work; ``None`` while it has none.
    """

    machine: MarkPurgeReset | TransactionalMarkPurge
    producer: Producer | Session

    def __init__(self, group: Group, number: int) -> None:
        self.world: World = group.world
        self.group, self.number = group, number
        world = self.world
        self.host: Host = group.host
        self.ended = False
        self.fence: Fence | None = None
        world.sessions += 1
        self.name = f"{group.host.name}/lane {number}/session {world.sessions}"
        self._due = float("inf")

    # --- what the kinds do differently --------------------------------------------------------------

    @abstractmethod
    def take(self, now: float) -> None:
        """Tells the machine what has arrived."""

    @abstractmethod
    def carry_out(self, commands: list[Any]) -> bool:
        """Carries out what the machine decided; returns whether the lane can go on at once."""

    @abstractmethod
    def heed(self, command: Work, result: Any) -> None:
        """Takes the answer to a command to the database."""

    @abstractmethod
    def check_bounds(self) -> None:
        """I10: what the lane holds is bounded."""

    @abstractmethod
    def check_rest(self) -> None:
        """I10: with an empty outbox the lane knows nothing and holds nothing."""

    def is_done(self, now: float) -> bool:
        """Whether the lane may leave, as nothing is under way and it is to go."""
        return self.group.leash.draining and self.machine.settled

    def leave(self) -> None:
        """Ends what has settled."""
        self.end("told to")

    # --- the loop -----------------------------------------------------------------------------------

    def step(self) -> None:
        """One turn of the lane's loop."""
        if self.ended or self.fence is None:
            return
        leash, machine = self.group.leash, self.machine
        if leash.draining:
            machine.drain()
        if leash.stopped:
            self.end("told to")
            return
        now = self.host.clock()
        if self.is_done(now):
            self.leave()
            return
        self.take(now)
        if self.ended:
            return
        while commands := machine.decide(now, leading=self.may_lead(now)):
            if not self.carry_out(commands):
                return
        self.check_bounds()
        self.wake(min(max(machine.wake_at() - now, 0.0005), BEAT_SECONDS))

    def may_lead(self, now: float) -> bool:
        return now < self.group.leash.lease_until

    def wake(self, delay: float) -> None:
        """Has the lane look after ``delay`` seconds, if it would not sooner."""
        due = self.world.scheduler.now + delay
        if due < self._due:
            self._due = due
            self.world.scheduler.at(due, self.host.do, self._woken, due)

    def _woken(self, due: float) -> None:
        if due == self._due:
            self._due = float("inf")
            self.step()
        else:  # somebody woke it before
            self.world.scheduler.steps -= 1

    def soon(self) -> None:
        """Has the lane look at what has arrived: mostly at once, sometimes when more has."""
        random = self.world.chance.random
        self.wake(random() * 0.004 if random() < 0.2 else 0.0)

    def lose(self) -> None:
        """Takes that the fence is another's: the whole group stops."""
        self.group.lose(f"lane {self.number}")
        self.end("fenced")

    def end(self, why: str) -> None:
        """Ends the attempt; the group starts another unless it was told to stop."""
        if not self.ended:
            self.ended = True
            self.world.tell(self, None, "ends: %s", why)
            self.producer.close()
            self.group.ended(self.number)

    def mint(self) -> UUID:
        leader_id = self.world.mint()
        self.world.audit.leader_id_taken(leader_id, self.number)
        return cast("UUID", leader_id)
