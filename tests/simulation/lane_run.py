"""One attempt at a lane: the loops of production, on threads in virtual time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from greenlet import GreenletExit
from outbox_api import (
    Advanced,
    Batch,
    DriverError,
    Fence,
    LeadershipLost,
    OutboxError,
    OutboxTable,
    PermittedTopics,
)
from outbox_core.lanes.batch_lane import ExactlyOnceLane
from outbox_core.lanes.database import Database
from outbox_core.lanes.kept_rows import KeptRows, Rows
from outbox_core.lanes.record_lane import AtLeastOnceLane

from .greenlets import PREEMPTED_SECONDS, PREEMPTED_SHARE, Fiber, Threads
from .lane_table import LaneTable
from .scheduler import Host
from .trail import Session, Violation, serial_of

if TYPE_CHECKING:
    from .group import Group
    from .world import World

TOPICS = PermittedTopics()


class LaneRun(ABC):
    """One attempt, from entering the lane until its group is told to stop or something fails.

    Args:
        group: The group it runs in.
        number: The lane's number.

    Attributes:
        producer: Its session.
        lane: What decides; ``None`` until the lane has begun.
        ended: Whether it has.
    """

    producer: Session

    def __init__(self, group: Group, number: int) -> None:
        self.world: World = group.world
        self.group: Group = group
        self.number = number
        self.host: Host = group.host
        self.ended = False
        self.lane: AtLeastOnceLane | ExactlyOnceLane | None = None
        self.world.sessions += 1
        self.name = f"{group.host.name}/lane {number}/session {self.world.sessions}"
        self.telemetry = group.telemetry[number]
        self.threads = Threads(self.host, self._released, self.pause)

    def start(self) -> None:
        """Starts it."""
        Fiber(self.host, self._run, self._over)

    @property
    def fence(self) -> Fence | None:
        """Its right to work; ``None`` while it has none."""
        return self.lane.fence if self.lane is not None else None

    def _run(self) -> None:
        try:
            self.run()
        except OutboxError:
            if not self.host.runs:  # nobody waits for it any more
                raise GreenletExit from None
            raise

    # --- what the modes do differently --------------------------------------------------------------

    @abstractmethod
    def run(self) -> None:
        """Enters the lane, and runs it."""

    @abstractmethod
    def check_bounds(self) -> None:
        """I10: what the lane holds is bounded."""

    @abstractmethod
    def check_rest(self) -> None:
        """I10: with an empty outbox the lane knows nothing and holds nothing."""

    # --- what befalls it ----------------------------------------------------------------------------

    def fail(self, error: DriverError) -> None:
        """Has it fail for no reason; what is under way stays so."""
        if self.ended:
            return
        if self.lane is not None:
            self.lane.end(error)
        else:
            self._over(error)

    def _over(self, result: Any) -> None:
        if self.ended:
            return
        self.ended = True
        if result is None:
            self.world.tell(self, None, "ends: told to, or it has grown old")
            self._check_drained()
        else:
            self.world.tell(self, None, "ends: %s", result)
        error = result if isinstance(result, DriverError | LeadershipLost) else None
        self.group.ended(self.number, error)

    def _check_drained(self) -> None:
        """I12: where nothing fails, a lane that is to hand over drains before it is stopped."""
        drained = self.lane is not None and self.lane.drained
        if self.world.scenario.undisturbed and self.group.control.draining and not drained:
            raise Violation("I12", f"{self.name} was stopped before it had drained", lane=self.number)

    def _released(self) -> None:
        self.telemetry.take_events()  # nobody observes
        if not self.ended and self.lane is not None:
            self.check_bounds()

    def pause(self) -> float:
        """Returns how long a thread pauses that releases the lane's lock."""
        random = self.world.chance.random
        return random() * PREEMPTED_SECONDS if random() < PREEMPTED_SHARE else 0.0

    def database(self, purged: Sequence[Batch] = ()) -> Database:
        """Returns a new connection, of which the lane's recovery has purged batches."""
        return Database(lambda: cast("OutboxTable", LaneTable(self)), TOPICS, kept=_WatchedRows(self, purged))


class _WatchedRows(KeptRows):
    """Tells the audit which rows the product takes for rows that were deleted in vain."""

    def __init__(self, lane: LaneRun, purged: Sequence[Batch]) -> None:
        super().__init__(purged)
        self._lane = lane

    def checked(self, table: Rows, finished: Sequence[Batch], advanced: Advanced) -> Advanced:
        checked = super().checked(table, finished, advanced)
        for before, after in zip(advanced.records, checked.records, strict=True):
            if after.fault != before.fault:
                self._lane.world.audit.thought_kept(self._lane.producer, serial_of(after))
        return checked
