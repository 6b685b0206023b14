"""What a lane does between two waits, without I/O: a class for each delivery mode.

Both are a :class:`outbox_core.lanes.turn.Lane`: ``step`` returns requests to the database and the broker,
``receive`` handles the replies.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence, Sized
from typing import assert_never

from outbox_api import Batch, Deliveries, DriverError

from outbox_core.delivery.at_least_once import MarkPurgeReset
from outbox_core.delivery.commands import (
    Advance,
    Answer,
    Command,
    EndTransactions,
    Heartbeat,
    Mark,
    Park,
    Publish,
    Purge,
    Refresh,
    ReportFailures,
    Request,
    Reset,
    Send,
)
from outbox_core.delivery.exactly_once import SelectPublishPurge
from outbox_core.delivery.recovery import Entered, Opened
from outbox_core.events import BatchMoved, LeaderRefreshed
from outbox_core.lanes.telemetry import Telemetry
from outbox_core.lanes.turn import Reply
from outbox_core.leadership.protocol import LaneControl

log = logging.getLogger(__name__)

LIFE_SECONDS = 6 * 3600.0
"""The age limit of a lane. Its restart writes a new checkpoint, since brokers delete old ones."""


class AtLeastOnceLane:
    """A lane that sends single records, and purges those that are acknowledged.

    Args:
        machine: Decides what to mark, send and purge.
        number: The lane's number.
        telemetry: Its metrics, events and log.
        entered: Its fence, and how much is parked.
    """

    def __init__(self, machine: MarkPurgeReset, number: int, telemetry: Telemetry, entered: Entered) -> None:
        self.over = False
        self.fence = entered.fence
        self.machine = machine
        self._number = number
        self._telemetry = telemetry
        self._policy = machine.scoreboard.policy
        self._entering = False  # waits for a new epoch in the fence, and requests nothing else meanwhile
        self._deferred: list[Command] = []
        telemetry.counted(entered.parked, self._policy, 0)

    def step(self, now: float, control: LaneControl) -> list[Request]:
        """See :meth:`.Lane.step`; a drained lane leaves nothing in flight."""
        machine = self.machine
        if control.draining:
            machine.drain()
            self.over = machine.drained
        if self.over or self._entering:
            return []
        commands = self._deferred + machine.decide(now, leading=now < control.lease_until)
        self._deferred = []
        requests = self._requests(now, commands)
        metrics, board = self._telemetry.metrics, machine.scoreboard
        metrics.in_flight, metrics.waiting = machine.in_flight, board.waiting
        self._telemetry.gauge(now, self._policy, board.blocked, machine.topics)
        return requests + self._telemetry.heartbeat(now, self._policy)

    def wake_at(self) -> float:
        """See :meth:`.Lane.wake_at`."""
        return float("inf") if self._entering else self.machine.wake_at()

    def receive(self, now: float, reply: Reply) -> None:
        """See :meth:`.Lane.receive`; the lane continues after a retryable error of the database."""
        if isinstance(reply, Deliveries):
            self._telemetry.reported(now, reply)
            self._handle_deliveries(now, reply)
        elif isinstance(reply.request, Heartbeat):
            self._telemetry.answered(now, reply, self._policy)
        elif reply.error is not None:
            self._telemetry.failed_to_answer(now, reply)
            self._handle_error(now, reply.request, reply.error)
        else:
            self._handle_answer(now, reply)

    def _requests(self, now: float, commands: Sequence[Command]) -> list[Request]:
        requests: list[Request] = []
        for number, command in enumerate(commands):
            match command:
                case ReportFailures(failures, topics):
                    self._telemetry.failed(failures, topics)
                case Refresh():
                    self._entering, self._deferred = True, list(commands[number + 1 :])
                    return [*requests, command]
                case Send(records):
                    self._telemetry.sending(now, records)
                    requests.append(command)
                case _:
                    requests.append(command)
        return requests

    def _handle_deliveries(self, now: float, deliveries: Deliveries) -> None:
        if deliveries.delivered:
            self.machine.delivered(now, deliveries.delivered)
        if deliveries.failed:
            self.machine.failed(deliveries.failed)

    def _handle_error(self, now: float, request: Request, error: Exception) -> None:
        if isinstance(request, Send | Refresh) or not (isinstance(error, DriverError) and error.retryable):
            raise error
        log.warning(
            "lane %d: %s failed, trying again: %s", self._number, type(request).__name__.lower(), error
        )
        if isinstance(request, Mark):
            self.machine.mark_unknown(now)
        else:
            self.machine.finishing_unknown(now)

    def _handle_answer(self, now: float, answer: Answer) -> None:
        machine, telemetry = self.machine, self._telemetry
        telemetry.measure(answer)
        match answer.request:
            case Mark(source=source):
                telemetry.marked(now, source, len(answer.records))
                machine.marked(now, answer.records)
            case Purge(_, ids):
                changed = answer.changed
                telemetry.metrics.purged += len(ids) - len(changed.locked) - len(changed.kept)
                machine.purged(now, changed)
            case Reset():
                machine.reset_done(now, answer.changed.locked)
            case Park(_, poisons):
                machine.park_done(now, answer.changed)
                telemetry.parked(poisons, answer.changed.rows)
            case Refresh(leader_id):
                self._entering = False
                self.fence = answer.fence or self.fence
                telemetry.metrics.remarks += 1
                telemetry.add_event(LeaderRefreshed(leader_id, self._number))
                if answer.parked is not None:
                    telemetry.counted(answer.parked, self._policy, self._policy.done)
            case other:
                raise TypeError(f"unexpected answer to {other}")


class ExactlyOnceLane:
    """A lane that publishes batches in transactions, and purges those that are committed.

    An unknown outcome ends it. The next epoch of the lane fences this one, in the database and at the broker,
    and purges what is in the log already before it selects anything (:mod:`outbox_core.delivery.recovery`).

    Args:
        machine: Decides what to select, publish and purge.
        number: The lane's number.
        telemetry: Its metrics, events and log.
        opened: Its fence, and how much is parked.
        expires: When it reaches its age limit, in the caller's time.
        torn: Rows of which a part is in the log, as the checkpoint says. While there are any, its note stays.
    """

    def __init__(
        self,
        machine: SelectPublishPurge,
        number: int,
        telemetry: Telemetry,
        opened: Opened,
        expires: float,
        *,
        torn: Sized = (),
    ) -> None:
        self.over = False
        self.fence = opened.fence
        self.machine = machine
        self._number = number
        self._telemetry = telemetry
        self._expires = expires
        self._torn = torn
        self._ending = False
        telemetry.counted(opened.parked, machine.policy, 0)

    def step(self, now: float, control: LaneControl) -> list[Request]:
        """See :meth:`.Lane.step`; a drained lane has purged its batches, and removed its note if it may."""
        machine = self.machine
        if self.over or self._ending:
            return []
        if control.draining:
            machine.drain()
        drained = control.draining and machine.drained
        if drained and not self._torn:
            self._ending = True
            return [EndTransactions()]
        if drained or (machine.idle and now > self._expires):
            self.over = True
            return []
        requests = self._requests(now, machine.decide(now, leading=now < control.lease_until))
        self._report_moves()
        metrics = self._telemetry.metrics
        metrics.in_flight, metrics.waiting = machine.in_flight, machine.waiting
        self._telemetry.gauge(now, machine.policy, machine.failed.blocked, machine.failed.topics)
        return requests + self._telemetry.heartbeat(now, machine.policy, self._batches)

    def wake_at(self) -> float:
        """See :meth:`.Lane.wake_at`."""
        return float("inf") if self._ending else self.machine.wake_at()

    def receive(self, now: float, reply: Reply) -> None:
        """See :meth:`.Lane.receive`."""
        if isinstance(reply, Deliveries):
            raise TypeError("a batch is answered as a whole")
        machine, telemetry = self.machine, self._telemetry
        if reply.error is not None and not isinstance(reply.request, Heartbeat):
            telemetry.failed_to_answer(now, reply)
            raise reply.error
        telemetry.measure(reply)
        match reply.request:
            case Publish():
                telemetry.published(now, reply.failures)
                if reply.failures:
                    machine.aborted(now, reply.failures)
                else:
                    machine.published(now)
            case Advance(source=source):
                telemetry.marked(now, source, len(reply.advanced.records))
                telemetry.metrics.purged += reply.advanced.purged
                machine.advanced(now, reply.advanced)
            case Park(_, poisons):
                machine.parked(now, reply.changed.rows)
                telemetry.parked(poisons, reply.changed.rows)
            case Heartbeat():
                telemetry.answered(now, reply, machine.policy)
            case EndTransactions():
                self.over = True
            case other:
                raise TypeError(f"unexpected answer to {other}")
        self._report_moves()

    def _requests(
        self, now: float, commands: Sequence[Advance | Publish | Park | ReportFailures]
    ) -> list[Request]:
        requests: list[Request] = []
        for command in commands:
            match command:
                case ReportFailures(failures, topics):
                    self._telemetry.failed(failures, topics)
                case Publish(records):
                    self._telemetry.publishing(now, records)
                    requests.append(command)
                case Advance() | Park():
                    requests.append(command)
                case _:
                    assert_never(command)
        return requests

    def _batches(self) -> dict[str, object]:
        """Returns the present batches, for operators."""
        batches = self.machine.batches()
        return {"batches": [{**_span(batch), "stage": stage} for batch, stage in batches]}

    def _report_moves(self) -> None:
        moves, self.machine.moves = self.machine.moves, []
        for batch, stage in moves:
            self._telemetry.add_event(BatchMoved(**_span(batch), stage=stage, lane=self._number))


def _span(batch: Batch) -> dict[str, int]:
    return {"first": batch.runs[0][0], "last": batch.runs[-1][-1], "records": batch.rows}
