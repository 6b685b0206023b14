"""One attempt at a lane: takes the turns of ``lanes/turn.py`` in virtual time, and carries its requests out.

The lane itself, its turns and how it begins are production's. Simulated are the threads that carry requests
out, and what they speak to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from outbox_api import Advanced, Batch, Changed, DriverError, Fence, LeadershipLost
from outbox_core.delivery.commands import (
    Advance,
    Answer,
    EndTransactions,
    Heartbeat,
    Mark,
    Park,
    Purge,
    Request,
    Reset,
)
from outbox_core.delivery.recovery import Entered, Opened
from outbox_core.lanes.kept_rows import KeptRows
from outbox_core.lanes.lane import AtLeastOnceLane, ExactlyOnceLane
from outbox_core.lanes.turn import Executors, Reply

from . import fencing
from .connection import Connection, Work
from .database import FAILED, LOST
from .scheduler import Host
from .trail import Session, Violation

if TYPE_CHECKING:
    from .group import Group
    from .world import World

SHORTEST_WAIT = 0.0005
"""The least that a lane waits between two turns in which it asks for nothing."""


class LaneRun(ABC):
    """One attempt, from entering the lane until its group is told to stop or something fails.

    Args:
        group: The group it runs in.
        number: The lane's number.

    Attributes:
        producer: Its session.
        lane: What decides; ``None`` until the lane has begun.
        executors: Who carries out what the lane asks for; from when it has begun.
    """

    producer: Session
    lane: AtLeastOnceLane | ExactlyOnceLane | None
    executors: Executors

    def __init__(self, group: Group, number: int) -> None:
        self.world: World = group.world
        self.group, self.number = group, number
        world = self.world
        self.host: Host = group.host
        self.ended = False
        self.lane = None
        world.sessions += 1
        self.name = f"{group.host.name}/lane {number}/session {world.sessions}"
        self.telemetry = group.telemetry[number]
        self._replies: list[Reply] = []
        self._due = float("inf")

    @property
    def fence(self) -> Fence | None:
        """Its right to work; ``None`` while it has none."""
        return self.lane.fence if self.lane is not None else None

    # --- what the modes do differently --------------------------------------------------------------

    @abstractmethod
    def begin(self, result: Any) -> None:
        """Takes what the recovery returned: the lane may begin."""

    @abstractmethod
    def check_bounds(self) -> None:
        """I10: what the lane holds is bounded."""

    @abstractmethod
    def check_rest(self) -> None:
        """I10: with an empty outbox the lane knows nothing and holds nothing."""

    @abstractmethod
    def close(self) -> None:
        """Takes that the attempt has ended."""

    # --- the loop -----------------------------------------------------------------------------------

    def begun(self, result: Entered | Opened | LeadershipLost | DriverError) -> None:
        """Takes what came of the recovery."""
        if self.ended:
            return
        if isinstance(result, LeadershipLost):
            self.lose()
        elif isinstance(result, DriverError):
            self.end(f"could not begin: {result}", result)
        else:
            self.world.tell(self, None, "begins with %s", result.fence)
            self.begin(result)
            self.step()

    def step(self) -> None:
        """Takes one turn, and another if that one has asked for something."""
        if self.ended or self.lane is None:
            return
        try:
            patience = self._take_turn(self.lane) or self._take_turn(self.lane)
        except LeadershipLost:
            self.lose()
        except DriverError as error:
            self.end(str(error), error)
        else:
            if patience is None:
                self._check_drained(self.lane)
                self.end("told to, or it has grown old")
            else:
                self.check_bounds()
                self.wake(max(patience, SHORTEST_WAIT))

    def _take_turn(self, lane: AtLeastOnceLane | ExactlyOnceLane) -> float | None:
        replies, self._replies = self._replies, []
        patience = self.world.parts.turn(lane, self.group.control, self.host.clock, self.executors, replies)
        self.telemetry.take_events()  # nobody observes
        return patience

    def _check_drained(self, lane: AtLeastOnceLane | ExactlyOnceLane) -> None:
        """I12: where nothing fails, a lane that is to hand over drains before it is stopped."""
        if self.world.scenario.undisturbed and self.group.control.draining and not lane.over:
            raise Violation("I12", f"{self.name} was stopped before it had drained", lane=self.number)

    def reply(self, reply: Reply) -> None:
        """Keeps a reply until the lane's next turn: mostly at once, sometimes when more has come."""
        self._replies.append(reply)
        random = self.world.chance.random
        self.wake(random() * 0.004 if random() < 0.2 else 0.0)

    def wake(self, delay: float) -> None:
        """Has the lane take a turn after ``delay`` seconds, if it would not sooner."""
        due = self.world.scheduler.now + delay
        if due < self._due:
            self._due = due
            self.world.scheduler.at(due, self.host.do, self._woken, due)

    def _woken(self, due: float) -> None:
        if due == self._due:
            self._due = float("inf")
            self.step()
        else:  # another event woke it before
            self.world.scheduler.steps -= 1

    def lose(self) -> None:
        """Takes that the fence is another's: the whole group stops."""
        self.end("fenced", LeadershipLost(f"lane {self.number}"))

    def end(self, why: str, error: DriverError | LeadershipLost | None = None) -> None:
        """Ends the attempt; the group starts another unless it was told to stop."""
        if not self.ended:
            self.ended = True
            self.world.tell(self, None, "ends: %s", why)
            self.close()
            self.group.ended(self.number, error)

    # --- what the database answers ------------------------------------------------------------------

    def heed(self, request: Work | EndTransactions, result: Any) -> None:
        """Takes what the database answered."""
        if result is LOST:
            self.reply(Answer(request, error=LeadershipLost("the fence is another's")))
        elif result is FAILED:
            self.reply(Answer(request, error=DriverError("failed", retryable=True)))
        elif isinstance(result, Changed):
            self.reply(Answer(request, changed=result))
        elif result is None:
            self.reply(Answer(request))
        elif isinstance(request, Advance):
            done = Advanced(result.purged, result.records, result.newest, result.locked)
            self.reply(Answer(request, advanced=done))
        else:
            self.reply(Answer(request, records=result.records))


class DatabaseExecutor:
    """One of a lane's connections to the database."""

    def __init__(self, run: LaneRun) -> None:
        self._run = run
        self._connection = Connection(run)

    def purged(self, batches: Sequence[Batch]) -> None:
        """Takes that the lane's recovery has purged batches."""
        self._connection.kept = KeptRows(batches)

    def submit(self, request: Request) -> None:
        """See :meth:`outbox_core.lanes.turn.Executor.submit`."""
        match request:
            case Heartbeat():
                count = fencing.ReadParked(self._run.world.database)
                self._run.world.wire.call(self._run.host, count, partial(self._counted, request))
            case EndTransactions():
                self._end_transactions(request)
            case Mark() | Purge() | Reset() | Park() | Advance():
                self._connection.submit(request)
            case _:
                raise TypeError(f"{request} is not for the database")

    def _counted(self, request: Heartbeat, parked: Any) -> None:
        if parked is FAILED:
            self._run.reply(Answer(request, error=DriverError("failed", retryable=True)))
        else:
            self._run.reply(Answer(request, parked=parked))

    def _end_transactions(self, request: EndTransactions) -> None:
        run = self._run
        assert run.fence is not None
        note = run.world.parts.write_note((run.world.database, run.producer, run.fence, None), None)
        run.world.wire.call(run.host, note, partial(run.heed, request))
