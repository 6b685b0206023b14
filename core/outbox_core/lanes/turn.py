"""One turn of a lane's loop, without threads: which executor gets which request, and what may be sent.

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
"""A reply to a lane: the answer to a request, or deliveries of records."""


class Lane(Protocol):
    """One lane, for one epoch.

    Attributes:
        over: Whether it has ended: it was drained, or has reached its age limit.
        fence: The fence of its statements.
    """

    over: bool
    fence: Fence

    def step(self, now: float, control: LaneControl) -> list[Request]:
        """Returns the requests to make now, in order; empty if there are none before :meth:`wake_at`.

        Args:
            now: Seconds on a monotonic clock.
            control: Until when leadership is confirmed, and whether to end.
        """
        ...

    def receive(self, now: float, reply: Reply) -> None:
        """Handles a reply; each executor answers in the order of its requests.

        Raises:
            LeadershipLost: The fence carries another leader's token.
            DriverError: The lane cannot continue; a restart may succeed.
        """
        ...

    def wake_at(self) -> float:
        """Returns when to call :meth:`step` next if no reply comes before."""
        ...


class Executor(Protocol):
    """Executes requests in order."""

    def submit(self, request: Request) -> None:
        """Accepts a request without waiting; its reply comes in a later turn."""
        ...


Executors = Mapping[type[Request], Executor]
"""The executor of each kind of request."""


def record_executors(marker: Executor, purger: Executor, broker: Executor) -> Executors:
    """Returns the executors of a lane of at-least-once delivery, which marks and purges at the same time."""
    executors: dict[type[Request], Executor] = {Send: broker, Purge: purger}
    return executors | dict.fromkeys((Mark, Reset, Park, Refresh, Heartbeat), marker)


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
    """Gives a lane its replies, and submits the requests that follow.

    Args:
        lane: The lane.
        control: Until when leadership is confirmed, and whether to end.
        clock: Returns seconds on a monotonic clock.
        executors: The executor of each kind of request.
        replies: All replies since the turn before, in order of arrival.

    Returns:
        How many seconds to wait for the next reply; ``None`` if the lane has ended.

    Raises:
        LeadershipLost: The fence carries another leader's token.
        DriverError: The lane cannot continue; a restart may succeed.
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
    # Orders of the leader and the end of the lease are not replies, so the wait is bounded.
    return 0.0 if requests else min(max(lane.wake_at() - clock(), 0.0), REPORT_SECONDS)


class SendGate:
    """Decides whether records may still be sent at the moment when the broker's client takes them.

    Records sent after the end of the lease could arrive behind those of a successor.

    Args:
        leading: Returns whether leadership is confirmed at this moment.

    Attributes:
        closed: Whether the lane has ended. Nothing is sent then, and nothing is reported.
    """

    def __init__(self, leading: Callable[[], bool]) -> None:
        self._leading = leading
        self.closed = False

    def admit(self, records: list[MarkedRecord]) -> tuple[list[MarkedRecord], list[Failure]]:
        """Returns the records to send, and failures for those that must not be sent any more."""
        if self.closed:
            return [], []
        if self._leading():
            return records, []
        reason = "the lease ended before it was sent"
        return [], [Failure(record, reason, retryable=True) for record in records]
