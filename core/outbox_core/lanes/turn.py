"""One turn of a lane's loop, without threads: who carries out which request, and what may still be sent.

The threads are in :mod:`outbox_core.lanes.loop` and :mod:`outbox_core.lanes.workers`. The simulation takes
the same turns in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from outbox_sdk import Deliveries, Failure, Fence, MarkedRecord

from outbox_core.delivery.commands import (
    Advance,
    Answer,
    EndTransactions,
    Heartbeat,
    Mark,
    Park,
    Publish,
    Purge,
    Refresh,
    Request,
    Reset,
    Send,
)
from outbox_core.leadership.protocol import REPORT_SECONDS, LaneControl

Reply = Answer | Deliveries
"""What a lane hears: what came of a request, or of records that were sent."""


class Lane(Protocol):
    """One attempt at one lane.

    Attributes:
        over: Whether it has nothing more to do, as it was told to end or has grown old.
        fence: What its statements are checked against.
    """

    over: bool
    fence: Fence

    def step(self, now: float, control: LaneControl) -> list[Request]:
        """Returns what to ask now, in order; empty when there is nothing before :meth:`wake_at`.

        Args:
            now: Seconds on a clock that never goes back.
            control: For how long leadership is vouched for, and whether to end.
        """
        ...

    def receive(self, now: float, reply: Reply) -> None:
        """Takes a reply; each executor answers in the order in which it was asked.

        Raises:
            LeadershipLost: The fence carries somebody else's token.
            DriverError: The lane can go on no longer; another attempt may.
        """
        ...

    def wake_at(self) -> float:
        """Returns when :meth:`step` may next have something to ask though nothing is heard."""
        ...


class Executor(Protocol):
    """Carries out one request after the other."""

    def submit(self, request: Request) -> None:
        """Has a request carried out, and returns at once; its reply belongs to a later turn."""
        ...


Executors = Mapping[type[Request], Executor]
"""Who carries out which kind of request."""


def record_executors(marker: Executor, purger: Executor, broker: Executor) -> Executors:
    """Returns the executors of a lane of at-least-once delivery, which marks and purges at the same time."""
    executors: dict[type[Request], Executor] = {Send: broker, Purge: purger, Heartbeat: purger}
    return executors | dict.fromkeys((Mark, Reset, Park, Refresh), marker)


def batch_executors(marker: Executor, broker: Executor) -> Executors:
    """Returns the executors of a lane of exactly-once delivery."""
    executors: dict[type[Request], Executor] = {Publish: broker}
    return executors | dict.fromkeys((Advance, Park, Heartbeat, EndTransactions), marker)


def take_turn(
    lane: Lane,
    control: LaneControl,
    clock: Callable[[], float],
    executors: Executors,
    replies: Iterable[Reply],
) -> float | None:
    """Lets a lane hear replies, and has carried out what it asks for then.

    Args:
        lane: The lane.
        control: For how long leadership is vouched for, and whether to end.
        clock: Returns seconds, and never goes back.
        executors: Who carries out what it asks for.
        replies: All replies since the turn before, in the order in which they came.

    Returns:
        For how many seconds to wait for the next reply; ``None`` if the lane has ended.

    Raises:
        LeadershipLost: The fence carries somebody else's token.
        DriverError: The lane can go on no longer; another attempt may.
    """
    for reply in replies:
        lane.receive(clock(), reply)
    if control.stopped:
        return None
    requests = lane.step(clock(), control)
    for request in requests:
        executors[type(request)].submit(request)
    if lane.over:
        return None
    # An order of the leader, or the end of the lease, is no reply: it is looked for now and then.
    return 0.0 if requests else min(max(lane.wake_at() - clock(), 0.0), REPORT_SECONDS)


class SendGate:
    """Decides, when the broker's client could take records, whether they may still be sent.

    Records that wait for the client while the lease ends could arrive behind what a successor has sent.

    Args:
        leading: Returns whether leadership is vouched for at this moment.

    Attributes:
        closed: Whether the lane has ended. Nothing is sent then, and nobody is told.
    """

    def __init__(self, leading: Callable[[], bool]) -> None:
        self._leading = leading
        self.closed = False

    def admit(self, records: list[MarkedRecord]) -> tuple[list[MarkedRecord], list[Failure]]:
        """Returns the records to send, and those that are not to be sent any more."""
        if self.closed:
            return [], []
        if self._leading():
            return records, []
        reason = "the lease ended before it was sent"
        return [], [Failure(record, reason, retryable=True) for record in records]
