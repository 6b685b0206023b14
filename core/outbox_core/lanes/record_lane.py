"""A lane of at-least-once delivery: what its three loops do, and what they make of what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple
from uuid import UUID

from outbox_api import Changed, Deliveries, DriverError, Failure, MarkedRecord, Poison

from outbox_core.control.protocol import LaneControl
from outbox_core.delivery.at_least_once import MarkPurgeReset
from outbox_core.delivery.coalescing import Coalesce, Coalesced
from outbox_core.delivery.commands import Mark, Park, Purge, Reset
from outbox_core.delivery.recovery import Entered
from outbox_core.delivery.scoreboard import Taken
from outbox_core.events import LeaderRefreshed
from outbox_core.lanes.database import Database
from outbox_core.lanes.lane import Lane, Settle, Threads, Work
from outbox_core.lanes.pauses import Pauses
from outbox_core.lanes.telemetry import Telemetry

POLL_SECONDS = 0.001
"""How long the sending loop waits for deliveries before it looks for more records to send."""
QUIET_SHARE = 0.1
"""It waits for this share of the time since the last delivery or record instead, if that is longer."""
IDLE_SECONDS = 0.1
"""The longest of these waits, and the time between two polls while nothing is in flight."""


NOTHING = Taken([], [], [])
_NONE: Mapping[str, object] = {}


class Sending(NamedTuple):
    """What the sending loop does next: sends records, and then waits for deliveries."""

    records: Taken
    seconds: float


class AtLeastOnceLane(Lane):
    """A lane that sends single records, and purges those that are acknowledged.

    One loop sends; one marks, and does all else that must not be done beside a mark; one purges.

    Attributes:
        next_for_marker, next_for_purger: See :meth:`.Lane.ask`.
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
        pauses = Pauses(machine, entered.pauses, threads.clock())
        policy = machine.scoreboard.held.policy
        super().__init__(number, entered.fence, control, telemetry, threads, pauses, policy)
        self.machine = machine
        self.lanes = lanes
        self._sent = 0  # records without a report
        self._moved_at = self._polled_at = 0.0
        self._sending = self._loop(self._send_due, self._next_to_send)
        self.next_for_marker = self._database_loop(self._mark_due, self._next_for_marker)
        self.next_for_purger = self._database_loop(machine.purge_due, self._next_purge)
        telemetry.counted(entered.parked, self.policy, 0)

    # --- for its loops ------------------------------------------------------------------------------

    def next_to_send(self, reports: Deliveries | None) -> Sending | None:
        """Takes what was reported, and returns what to send; ``None`` if the lane has ended."""
        return self._sending(partial(self._reported, reports) if reports is not None else None)

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
        telemetry.gauge(now, self.policy, board.held.blocked, machine.topics)
        telemetry.no_longer_coalesced(machine.coalescing.quiet(now))

    def _settle(self, now: float, /) -> None:
        if self.pauses.has_changed():
            self.telemetry.hurry(now)
        failures, topics = self.machine.take_failed(now)
        if failures:
            self.telemetry.failed(failures, topics)

    def _send_due(self) -> float:
        return 0.0 if self._sent or self.machine.may_send else self._polled_at + IDLE_SECONDS

    def _next_to_send(self, now: float) -> Sending:
        self._polled_at = now
        taken = self.machine.next_to_send() if self.machine.may_send else NOTHING
        for some in taken:
            if some:
                self.telemetry.sending(now, some)
                self._sent += len(some)
                self._moved_at = now
        quiet = QUIET_SHARE * (now - self._moved_at)
        seconds = min(max(POLL_SECONDS, quiet), IDLE_SECONDS) if self._sent else 0.0
        return Sending(taken, seconds)

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
        due = min(machine.unhold_due(), machine.coalesce_due(), machine.mark_due())
        return min(due, self.telemetry.heartbeat_due(), self.pauses.due)

    def _next_for_marker(self, now: float) -> Work:
        machine = self.machine
        if machine.may_refresh:
            return Work("refresh", partial(self._enter, machine.next_leader_id(now)))
        if min(self.telemetry.heartbeat_due(), self.pauses.due) <= now:
            return next_news(self, now)
        if machine.unhold_due() > now and machine.coalesce_due() <= now:
            look = partial(self._coalesce, machine.next_coalesce(now))
            return self._work("coalesce", look, machine.coalesce_unknown)
        if machine.unhold_due() > now:
            return self._work("mark", partial(self._mark, machine.next_mark(now)), machine.mark_unknown)
        unhold = machine.next_unhold(now)
        if isinstance(unhold, Park):
            return self._work("park", partial(self._park, unhold), machine.finishing_unknown)
        return self._work("reset", partial(self._reset, unhold), machine.finishing_unknown)

    def _next_purge(self, now: float) -> Work:
        machine = self.machine
        return self._work("purge", partial(self._purge, machine.next_purge(now)), machine.finishing_unknown)

    def _work(self, name: str, run: Callable[[Database], Settle], unknown: Callable[[float], None]) -> Work:
        """Returns what the machine decides on again after an error that may pass."""

        def failed(now: float, error: Exception) -> None:
            if not (isinstance(error, DriverError) and error.retryable):
                raise error
            self.telemetry.warn("lane %d: %s failed, trying again: %s", self.number, name, error)
            unknown(now)

        return Work(name, run, failed)

    # --- what is done without the lock, and settled with it -----------------------------------------

    def _enter(self, leader_id: UUID, database: Database) -> Settle:
        """Raises the epoch in the fence, for a new leader id (A9)."""
        table = database.table()
        fence = table.enter(self.fence.lane, self.lanes, self.fence.token)
        return partial(self._entered, leader_id, Entered(fence, table.parked(), table.pauses()))

    def _entered(self, leader_id: UUID, entered: Entered, _seconds: float, now: float) -> None:
        self.fence = entered.fence
        self.machine.entered()
        self.pauses.looked(now, entered.pauses)
        self.telemetry.metrics.remarks += 1
        self.telemetry.add_event(LeaderRefreshed(leader_id, self.number))
        self.telemetry.counted(entered.parked, self.policy, self.policy.done)

    def _mark(self, mark: Mark, database: Database) -> Settle:
        leader_id, limit, max_bytes, keys, source, topics = mark
        marked = database.table().mark(self.fence, leader_id, limit, max_bytes, keys, source, topics)
        return partial(self._marked, source, database.topics.checked(marked))

    def _marked(self, source: int, records: Sequence[MarkedRecord], seconds: float, now: float) -> None:
        self.telemetry.measurements.step("mark", seconds, len(records))
        self.telemetry.marked(now, source, len(records))
        self.machine.marked(now, records)

    def _coalesce(self, look: Coalesce, database: Database) -> Settle:
        return partial(self._coalesced, database.coalesce(self.fence, look))

    def _coalesced(self, found: Coalesced, seconds: float, now: float) -> None:
        self.telemetry.coalesced(found, seconds, is_first=self.machine.coalesced(now, found))

    def _purge(self, purge: Purge, database: Database) -> Settle:
        changed = database.table().purge(self.fence, purge.leader_id, purge.ids)
        return partial(self._purged, len(purge.ids), changed)

    def _purged(self, rows: int, changed: Changed, seconds: float, now: float) -> None:
        self.telemetry.measurements.step("purge", seconds, rows)
        self.telemetry.metrics.purged += rows - len(changed.locked) - len(changed.kept)
        self.machine.purged(now, changed)

    def _reset(self, reset: Reset, database: Database) -> Settle:
        changed = database.table().reset(self.fence, reset.leader_id, reset.ids)
        return partial(self._reset_done, len(reset.ids), changed)

    def _reset_done(self, rows: int, changed: Changed, seconds: float, now: float) -> None:
        self.telemetry.measurements.step("reset", seconds, rows)
        self.machine.reset_done(now, changed.locked)

    def _park(self, park: Park, database: Database) -> Settle:
        changed = database.table().park(self.fence, park.leader_id, park.poisons, park.ids)
        return partial(self._parked, park.poisons, changed)

    def _parked(self, poisons: Sequence[Poison], changed: Changed, seconds: float, now: float) -> None:
        self.telemetry.measurements.step("park", seconds, len(poisons))
        self.machine.park_done(now, changed)
        self.telemetry.parked(poisons, changed.rows)


def heartbeat(lane: Lane, metrics: Mapping[str, object]) -> Work:
    """Returns what writes a lane's metrics beside its fence, and counts what is parked."""

    def run(database: Database) -> Settle:
        parked = database.heartbeat(lane.fence, metrics)
        return lambda _seconds, _now: lane.telemetry.beaten(parked, lane.policy)

    return Work("heartbeat", run, lambda _now, error: lane.telemetry.not_beaten(error))


def next_news(lane: Lane, now: float, more: Mapping[str, object] = _NONE) -> Work:
    """Returns a look at what is paused, or a heartbeat, whichever is due."""
    if lane.pauses.due <= now:
        return _look_at_pauses(lane)
    told = {**more, **lane.pauses.as_data()}
    return heartbeat(lane, lane.telemetry.next_heartbeat(now, lane.policy, told))


def _look_at_pauses(lane: Lane) -> Work:
    lane.pauses.asked()

    def run(database: Database) -> Settle:
        found = database.table().pauses()
        return lambda _seconds, now: lane.pauses.looked(now, found)

    def failed(now: float, error: Exception) -> None:
        if not isinstance(error, DriverError):
            raise error
        lane.pauses.failed(now)

    return Work("pauses", run, failed)


def refused(records: Taken) -> Deliveries:
    """Returns the report of records that must not be sent any more."""
    reason = "the lease ended before it was sent"
    return Deliveries(failed=[Failure(record, reason, retryable=True) for some in records for record in some])
