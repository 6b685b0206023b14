"""A lane of at-least-once delivery: what its three loops do, and what they make of what comes of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple
from uuid import UUID

from outbox_api import Changed, Deliveries, DriverError, Failure, MarkedRecord, Parked

from outbox_core.delivery.at_least_once import MarkPurgeReset
from outbox_core.delivery.commands import Mark, Park, Purge, Reset
from outbox_core.delivery.recovery import Entered
from outbox_core.delivery.retries import RetryPolicy
from outbox_core.events import LeaderRefreshed
from outbox_core.lanes.database import Database
from outbox_core.lanes.lane import LONGEST_WAIT, Lane, Threads, Work
from outbox_core.lanes.telemetry import Telemetry
from outbox_core.leadership.protocol import LaneControl

POLL_SECONDS = 0.001
"""How long the sending loop waits for deliveries before it looks for more records to send."""
QUIET_SHARE = 0.1
"""It waits for this share of the time since the last delivery or record instead, if that is longer."""
IDLE_SECONDS = 0.1
"""The longest of these waits, and the time between two polls while nothing is in flight."""


class Sending(NamedTuple):
    """What the sending loop does next: sends records, and then waits for deliveries."""

    records: list[MarkedRecord]
    seconds: float


class AtLeastOnceLane(Lane):
    """A lane that sends single records, and purges those that are acknowledged.

    One loop sends; one marks, and does all else that must not be done beside a mark; one purges.

    Args:
        machine: Decides what to mark, send and purge.
        number: The lane's number.
        telemetry: Its metrics, events and log.
        entered: Its fence, and how much is parked.
        control: Until when leadership is confirmed, and whether to end.
        threads: What it runs on.
        lanes: How many lanes there are.

    Attributes:
        machine: As given.
    """

    def __init__(
        self,
        machine: MarkPurgeReset,
        number: int,
        telemetry: Telemetry,
        entered: Entered,
        *,
        control: LaneControl,
        threads: Threads,
        lanes: int,
    ) -> None:
        super().__init__(number, entered.fence, control, telemetry, threads)
        self.machine = machine
        self.lanes = lanes
        self._policy = machine.scoreboard.policy
        self._sent = 0  # records without a report
        self._moved_at = self._polled_at = 0.0
        self._sending = self._loop(self._send_due)
        self._marking = self._database_loop(self._mark_due, self._next_for_marker, LONGEST_WAIT)
        self._purging = self._database_loop(machine.purge_due, self._next_purge, LONGEST_WAIT)
        telemetry.counted(entered.parked, self._policy, 0)

    # --- for its loops ------------------------------------------------------------------------------

    def next_to_send(self, reports: Deliveries | None) -> Sending | None:
        """Takes what was reported, and returns what to send; ``None`` if the lane has ended."""
        settle = partial(self._reported, reports) if reports is not None else None
        return self.ask(self._sending, self._next_to_send, settle)

    def next_for_marker(self, settle: Callable[[float], None] | None) -> Work | None:
        """See :meth:`Lane.ask`."""
        return self.ask(self._marking, self._marking.take, settle)

    def next_for_purger(self, settle: Callable[[float], None] | None) -> Work | None:
        """See :meth:`Lane.ask`."""
        return self.ask(self._purging, self._purging.take, settle)

    # --- with the lock ------------------------------------------------------------------------------

    def _look(self, now: float) -> None:
        machine, control = self.machine, self._control
        if control.draining:
            machine.drain()
            if machine.drained:
                self.drained = True
                self._end()
                return
        machine.look(now, leading=now < control.lease_until)
        telemetry, board = self.telemetry, machine.scoreboard
        telemetry.metrics.in_flight, telemetry.metrics.waiting = machine.in_flight, board.waiting
        telemetry.gauge(now, self._policy, board.blocked, machine.topics)

    def _settle(self, now: float, /) -> None:
        failures, topics = self.machine.take_failed(now)
        if failures:
            self.telemetry.failed(failures, topics)

    def _send_due(self) -> float:
        return 0.0 if self._sent or self.machine.may_send else self._polled_at + IDLE_SECONDS

    def _next_to_send(self, now: float) -> Sending:
        self._polled_at = now
        records = self.machine.next_to_send() if self.machine.may_send else []
        if records:
            self.telemetry.sending(now, records)
            self._sent += len(records)
            self._moved_at = now
        if not self._sent:
            return Sending(records, 0.0)
        quiet = QUIET_SHARE * (now - self._moved_at)
        return Sending(records, min(max(POLL_SECONDS, quiet), IDLE_SECONDS))

    def _reported(self, reports: Deliveries, now: float) -> None:
        delivered, failed = reports.delivered, reports.failed
        if not (delivered or failed):
            return
        self._sent -= len(delivered) + len(failed)
        self._moved_at = now
        self.telemetry.reported(now, reports)
        if delivered:
            self.machine.delivered(now, delivered)
        if failed:
            self.machine.failed(failed)

    def _mark_due(self) -> float:
        machine = self.machine
        if machine.may_refresh:
            return 0.0
        return min(machine.unhold_due(), machine.mark_due(), self.telemetry.heartbeat_due())

    def _next_for_marker(self, now: float) -> Work:
        machine = self.machine
        if machine.may_refresh:
            return _Entering(self, machine.next_leader_id(now))
        if self.telemetry.heartbeat_due() <= now:
            return Heartbeat(self, self._policy, self.telemetry.next_heartbeat(now, self._policy, {}))
        if machine.unhold_due() <= now:
            unhold = machine.next_unhold(now)
            return _Parking(self, unhold) if isinstance(unhold, Park) else _Resetting(self, unhold)
        return _Marking(self, machine.next_mark(now))

    def _next_purge(self, now: float) -> Work:
        return _Purging(self, self.machine.next_purge(now))


def refused(records: Sequence[MarkedRecord]) -> Deliveries:
    """Returns the report of records that must not be sent any more."""
    reason = "the lease ended before it was sent"
    return Deliveries(failed=[Failure(record, reason, retryable=True) for record in records])


class Heartbeat(Work):
    """Writes the lane's metrics beside its fence, and counts what is parked."""

    name = "heartbeat"
    _parked = Parked(0, None)

    def __init__(self, lane: Lane, policy: RetryPolicy, metrics: Mapping[str, object]) -> None:
        self._lane, self._policy, self._metrics = lane, policy, metrics

    def run(self, database: Database) -> None:
        """See :meth:`.Work.run`."""
        self._parked = database.heartbeat(self._lane.fence, self._metrics)

    def done(self, _now: float, /) -> None:
        """See :meth:`.Work.done`."""
        self._lane.telemetry.beaten(self._parked, self._policy)

    def failed(self, _now: float, error: Exception, /) -> None:
        """See :meth:`.Work.failed`; an error of the database does not end the lane."""
        self._lane.telemetry.not_beaten(error)


class _Entering(Work):
    """Raises the epoch in the fence, for a new leader id (A9)."""

    name = "refresh"
    _entered: Entered

    def __init__(self, lane: AtLeastOnceLane, leader_id: UUID) -> None:
        self._lane, self._leader_id = lane, leader_id

    def run(self, database: Database) -> None:
        lane, table = self._lane, database.table()
        fence = table.enter(lane.fence.lane, lane.lanes, lane.fence.token)
        self._entered = Entered(fence, table.parked())

    def done(self, _now: float, /) -> None:
        lane, telemetry, policy = self._lane, self._lane.telemetry, self._lane.machine.scoreboard.policy
        lane.fence = self._entered.fence
        lane.machine.entered()
        telemetry.metrics.remarks += 1
        telemetry.add_event(LeaderRefreshed(self._leader_id, lane.number))
        telemetry.counted(self._entered.parked, policy, policy.done)


class _Repeated(Work):
    """What the machine decides on again after an error that may pass."""

    def __init__(self, lane: AtLeastOnceLane) -> None:
        self._lane = lane

    @abstractmethod
    def unknown(self, now: float, /) -> None:
        """Tells the machine that the outcome is unknown."""

    def failed(self, now: float, error: Exception, /) -> None:
        if not (isinstance(error, DriverError) and error.retryable):
            raise error
        self._lane.telemetry.warn("lane %d: %s failed, trying again: %s", self._lane.number, self.name, error)
        self.unknown(now)


class _Marking(_Repeated):
    name = "mark"
    _records: Sequence[MarkedRecord] = ()

    def __init__(self, lane: AtLeastOnceLane, mark: Mark) -> None:
        super().__init__(lane)
        self._mark = mark

    def run(self, database: Database) -> None:
        leader_id, limit, max_bytes = self._mark.leader_id, self._mark.limit, self._mark.max_bytes
        keys, source, topics = self._mark.excluded_keys, self._mark.source, self._mark.excluded_topics
        marked = database.table().mark(self._lane.fence, leader_id, limit, max_bytes, keys, source, topics)
        self._records = database.topics.checked(marked)
        self.rows = len(self._records)

    def done(self, now: float, /) -> None:
        lane, records = self._lane, self._records
        lane.telemetry.marked(now, self._mark.source, len(records))
        lane.machine.marked(now, records)

    def unknown(self, now: float, /) -> None:
        self._lane.machine.mark_unknown(now)


class _Finishing(_Repeated):
    """What ends the life of a mark."""

    _changed = Changed(0)

    def unknown(self, now: float, /) -> None:
        self._lane.machine.finishing_unknown(now)


class _Purging(_Finishing):
    name = "purge"

    def __init__(self, lane: AtLeastOnceLane, purge: Purge) -> None:
        super().__init__(lane)
        self._purge = purge
        self.rows = len(purge.ids)

    def run(self, database: Database) -> None:
        self._changed = database.table().purge(self._lane.fence, self._purge.leader_id, self._purge.ids)

    def done(self, now: float, /) -> None:
        lane, changed = self._lane, self._changed
        lane.telemetry.metrics.purged += len(self._purge.ids) - len(changed.locked) - len(changed.kept)
        lane.machine.purged(now, changed)


class _Resetting(_Finishing):
    name = "reset"

    def __init__(self, lane: AtLeastOnceLane, reset: Reset) -> None:
        super().__init__(lane)
        self._reset = reset
        self.rows = len(reset.ids)

    def run(self, database: Database) -> None:
        self._changed = database.table().reset(self._lane.fence, self._reset.leader_id, self._reset.ids)

    def done(self, now: float, /) -> None:
        self._lane.machine.reset_done(now, self._changed.locked)


class _Parking(_Finishing):
    name = "park"

    def __init__(self, lane: AtLeastOnceLane, park: Park) -> None:
        super().__init__(lane)
        self._park = park
        self.rows = len(park.poisons)

    def run(self, database: Database) -> None:
        park = self._park
        self._changed = database.table().park(self._lane.fence, park.leader_id, park.poisons, park.ids)

    def done(self, now: float, /) -> None:
        lane, poisons = self._lane, self._park.poisons
        lane.machine.park_done(now, self._changed)
        lane.telemetry.parked(poisons, self._changed.rows)
