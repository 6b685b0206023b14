"""Two elections: one through a group's coordinator with the real ``Leadership``, one that trusts wall clocks.

Both are hints, and both can be made to name two leaders at once: the first by a coordinator that lies, or by
a process whose clock stood still with it; the second by any step of a wall clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from outbox_api.election.leadership import Leadership, LeadershipEvent

if TYPE_CHECKING:
    from .process import Process
    from .world import World

SESSION_SECONDS = 1.5
"""After so long without a heartbeat the coordinator gives a member up."""
TERM_SECONDS = 0.9
"""What a confirmation is worth, from when it was sent."""
TICK_SECONDS = 0.2


class Member(Protocol):
    """A process's part in an election."""

    cut_until: float

    def tick(self) -> None:
        """Looks at the clock, and asks for a confirmation; by itself again and again."""
        ...

    def lease(self) -> float:
        """Returns for how many more seconds leadership is vouched for."""
        ...

    def hand_over(self) -> None:
        """Is asked to let another lead."""
        ...

    def leave(self, then: Callable[[], None]) -> None:
        """Leaves the election, as its process asks; ``then`` is called when it is left."""
        ...


class Election(Protocol):
    """Who leads, as far as the election knows."""

    lies_until: float

    def join(self, process: Process) -> Member: ...


class Coordinator:
    """Kafka's group coordinator, which owns the truth about partition 0 unless it lies.

    Attributes:
        lies_until: Until when it tells every member that partition 0 is its own.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.lies_until = 0.0
        self.owner: GroupMember | None = None
        self._seen = 0.0

    def join(self, process: Process) -> GroupMember:
        return GroupMember(self, process)

    def heartbeat(self, member: GroupMember, assignment: int, sent_at: float) -> None:
        """Takes a member's heartbeat, and answers whether partition 0 is its own."""
        now = self.world.scheduler.now
        if self.owner is not None and self._seen + SESSION_SECONDS < now:
            self.owner = None
        if self.owner is None and member.standing_back_until <= now:
            self.owner = member
        if self.owner is member:
            self._seen = now
        owns = self.owner is member or self.lies_until > now
        member.host.after(self.world.chance.random() * 0.01, member.answered, owns, assignment, sent_at)

    def left(self, member: GroupMember) -> None:
        """Takes that a member has given partition 0 up."""
        member.standing_back_until = self.world.scheduler.now + SESSION_SECONDS
        if self.owner is member:
            self.owner = None


class GroupMember:
    """A member of the group, with the real state of leadership."""

    def __init__(self, coordinator: Coordinator, process: Process) -> None:
        self.host = process.host
        self.cut_until = 0.0
        self.standing_back_until = 0.0
        self._coordinator = coordinator
        self._process = process
        self._leadership = Leadership(TERM_SECONDS)
        self._handing_over = False
        self._leaving: list[Callable[[], None]] = []
        self._gone = False

    def lease(self) -> float:
        return self._leadership.lease(self.host.clock())

    def tick(self) -> None:
        if self._gone:
            return
        now, world = self.host.clock(), self._coordinator.world
        self._handle_answer(self._leadership.tick(now))
        if world.scheduler.now >= self.cut_until and not self._handing_over:
            self._ask(now)
        self.host.after(TICK_SECONDS, self.tick)

    def _ask(self, now: float) -> None:
        world, assignment = self._coordinator.world, self._leadership.assignment
        delay = world.chance.random() * 0.01
        world.scheduler.after(delay, self._coordinator.heartbeat, self, assignment, now)

    def answered(self, owns: bool, assignment: int, sent_at: float) -> None:
        """Takes the coordinator's answer to a heartbeat."""
        now, leadership = self.host.clock(), self._leadership
        if self._handing_over or self._gone or self._coordinator.world.scheduler.now < self.cut_until:
            return
        if not owns:
            if leadership.owns:
                self._handle_answer(leadership.lost(now))
        elif leadership.owns:
            self._handle_answer(leadership.confirmed(assignment, sent_at, now))
        else:
            self._handle_answer(leadership.assigned(now))

    def hand_over(self) -> None:
        if self._leadership.owns and not self._handing_over:
            self._handing_over = True
            events = self._leadership.revoked(self.host.clock())
            self._handle_answer([event for event in events if event is not LeadershipEvent.REVOKED])
            if LeadershipEvent.REVOKED in events:
                self._process.revoked(self._handed_over)
            else:
                self._handed_over()

    def leave(self, then: Callable[[], None]) -> None:
        self._leaving.append(then)
        self.hand_over()
        if not self._handing_over:
            self._leave()

    def _handed_over(self) -> None:
        self._handing_over = False
        self._leadership.ended()
        self._give_back()
        if self._leaving:
            self._leave()

    def _give_back(self) -> None:
        self._coordinator.left(self)

    def _leave(self) -> None:
        self._gone = True
        leaving, self._leaving = self._leaving, []
        for then in leaving:
            then()

    def _handle_answer(self, events: Sequence[LeadershipEvent]) -> None:
        for event in events:
            if event is LeadershipEvent.ACQUIRED:
                self._process.acquired()
            elif event is LeadershipEvent.FENCED:
                self._process.fenced()


class WallClocks:
    """A lease in some store, judged by the wall clock of whoever looks at it: an elector to beware of."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lies_until = 0.0
        self.holder: WallClockMember | None = None
        self._until = float("-inf")

    def join(self, process: Process) -> WallClockMember:
        return WallClockMember(self, process)

    def claim(self, member: WallClockMember, wall: float) -> None:
        """Takes a claim, by the claimant's own idea of the time."""
        now = self.world.scheduler.now
        if self.holder is member or self._until < wall:
            self.holder = member
            self._until = wall + SESSION_SECONDS
        granted = self.holder is member or self.lies_until > now
        member.host.after(self.world.chance.random() * 0.01, member.answered, granted, wall)

    def left(self, member: WallClockMember) -> None:
        if self.holder is member:
            self.holder = None
            self._until = float("-inf")


class WallClockMember:
    """A process that believes its own wall clock."""

    def __init__(self, clocks: WallClocks, process: Process) -> None:
        self.host = process.host
        self.cut_until = 0.0
        self._clocks = clocks
        self._process = process
        self._until = float("-inf")
        self._leads = False
        self._quiet_until = 0.0
        self._handing_over = self._gone = False
        self._leaving: list[Callable[[], None]] = []

    def lease(self) -> float:
        return self._until - self._wall()

    def tick(self) -> None:
        if self._gone:
            return
        world = self._clocks.world
        self._look()
        if world.scheduler.now >= max(self.cut_until, self._quiet_until):
            world.scheduler.after(world.chance.random() * 0.01, self._clocks.claim, self, self._wall())
        self.host.after(TICK_SECONDS, self.tick)

    def answered(self, granted: bool, wall: float) -> None:
        if self._gone or self._clocks.world.scheduler.now < max(self.cut_until, self._quiet_until):
            return
        self._until = wall + TERM_SECONDS if granted else float("-inf")
        self._look()
        if self.lease() > 0 and not self._leads:
            self._leads = True
            self._process.acquired()

    def hand_over(self) -> None:
        if self._leads:
            self._leads, self._handing_over = False, True
            self._quiet_until = self._clocks.world.scheduler.now + SESSION_SECONDS
            self._process.revoked(self._handed_over)

    def leave(self, then: Callable[[], None]) -> None:
        self._leaving.append(then)
        self.hand_over()
        if not self._handing_over:
            self._leave()

    def _handed_over(self) -> None:
        self._handing_over = False
        self._until = float("-inf")
        self._clocks.left(self)
        if self._leaving:
            self._leave()

    def _leave(self) -> None:
        self._gone = True
        leaving, self._leaving = self._leaving, []
        for then in leaving:
            then()

    def _look(self) -> None:
        if self._leads and self.lease() <= 0:
            self._leads = False
            self._process.fenced()

    def _wall(self) -> float:
        return self._clocks.world.scheduler.now + self.host.wall
