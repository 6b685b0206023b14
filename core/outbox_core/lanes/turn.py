"""One turn of a lane's loop, without threads: which executor gets which request, and what may be sent.

The threads are in :mod:`outbox_core.lanes.loop` and :mod:`outbox_core.lanes.workers`. The simulation takes
the same turns in virtual time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from outbox_api import ColumnIs, Deliveries, Failure, Fence, MarkedRecord, Origin

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
from outbox_core.events import TakeoverBegan
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


class Unacknowledged:
    """Whether the broker answers one lane, through all its epochs.

    Times are seconds on a monotonic clock. One thread writes; any may call :meth:`seconds`.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._failing = False

    def due(self, now: float) -> None:
        """Handles that something was sent, or that the lane has failed with an error that may pass."""
        if self._since is None:
            self._since = now

    def answered(self) -> None:
        """Handles an acknowledgement or a refusal."""
        self._since, self._failing = None, False

    def idle(self) -> None:
        """Handles that nothing is due any more.

        If all that was due has failed, this is no sign that the broker answers: the keys may be parked.
        """
        if not self._failing:
            self._since = None

    def failed(self, now: float, failures: Sequence[Failure]) -> None:
        """Handles records that were not delivered: what sending again cannot cure is an answer, too."""
        if all(failure.retryable for failure in failures):
            self.due(now)
            self._failing = True
        else:
            self.answered()

    def seconds(self, now: float) -> float:
        """Returns for how long something has been due without an answer; 0 if nothing is."""
        since = self._since  # another thread may clear it
        return 0.0 if since is None else now - since


log = logging.getLogger(__name__)

QUIET_SECONDS = 60.0
"""A takeover begins anew once no record of the cluster has been taken for this long."""


def clusters_of(conditions: Sequence[ColumnIs], origin: Origin | None) -> tuple[int | None, ...]:
    """Returns the cluster whose rows each source has; ``None`` for the own cluster, and where it is unknown.

    Args:
        conditions: The sources.
        origin: How rows tell where they were written.
    """

    def cluster_of(condition: ColumnIs) -> int | None:
        if origin is None or condition.column != origin.column:
            return None
        return None if condition.value == origin.own else int(condition.value)

    return tuple(cluster_of(condition) for condition in conditions)


@dataclass(slots=True)
class _Taken:
    records: int = 0
    last: float = float("-inf")


class TakeoverLog:
    """What one lane has taken over under one leader, by cluster of origin; it outlives the lane's restarts.

    Args:
        lane: The lane's number.
    """

    def __init__(self, lane: int) -> None:
        self._lane = lane
        self._clusters: Sequence[int | None] = ()
        self._deliberate: Collection[int] = ()
        self._taken: dict[int, _Taken] = {}

    def configure(self, clusters: Sequence[int | None], deliberate: Collection[int]) -> None:
        """Sets whose rows each source has, see :func:`clusters_of`, and whose are taken on purpose."""
        self._clusters, self._deliberate = clusters, deliberate

    def cluster_of(self, source: int) -> int | None:
        """Returns the other cluster whose rows a source has; ``None`` for own rows."""
        return self._clusters[source] if source < len(self._clusters) else None

    def add(self, now: float, cluster: int, records: int) -> TakeoverBegan | None:
        """Counts records of another cluster, at least one, that a mark or selection returned.

        Returns:
            The event, if a takeover has begun with them.
        """
        taken = self._taken.setdefault(cluster, _Taken())
        begins = now - taken.last > QUIET_SECONDS
        taken.records += records
        taken.last = now
        if not begins:
            return None
        event = TakeoverBegan(cluster, self._lane, deliberate=cluster in self._deliberate)
        why = "as it was told to" if event.deliberate else "which has not published them in time"
        log.warning("lane %d takes over records of cluster %d, %s", self._lane, cluster, why)
        return event

    def as_data(self, now: float) -> Mapping[str, object]:
        """Returns what heartbeats say about it; nothing if nothing was taken over."""
        found = {
            str(cluster): {"records": taken.records, "seconds_ago": round(now - taken.last, 1)}
            for cluster, taken in sorted(self._taken.items())
        }
        return {"taken_over_from": found} if found else {}
