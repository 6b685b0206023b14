"""An attempt at a lane of at-least-once delivery, and the thread that sends for it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from outbox_api import Deliveries, Failure, MarkedRecord, OutboxError
from outbox_core.config.settings import Limits
from outbox_core.delivery.commands import Answer, Refresh, Request, Send
from outbox_core.delivery.recovery import Entered
from outbox_core.lanes.lane import AtLeastOnceLane
from outbox_core.lanes.turn import record_executors

from .broker import Producer
from .lane_run import DatabaseExecutor, LaneRun
from .recovery import Servers
from .trail import Violation

if TYPE_CHECKING:
    from .group import Group


class RecordLane(LaneRun):
    """An attempt at a lane of at-least-once delivery."""

    lane: AtLeastOnceLane | None
    producer: Producer

    def __init__(self, group: Group, number: int) -> None:
        super().__init__(group, number)
        world = self.world
        self.producer = world.parts.producer(world.broker, self.host, number, self.name, self)
        self.producer.token = group.token
        self._sender = SenderExecutor(self)
        self._aside = (
            0  # most keys that waited for locked rows, of each of which a record may be ready at once
        )
        self.executors = record_executors(MarkExecutor(self), DatabaseExecutor(self), self._sender)
        self.enter(self.begun)

    def enter(self, then: Any) -> None:
        """Enters the lane, and calls ``then`` with the outcome."""
        servers = Servers(self.world, self.host, self.group.settings, self.producer)
        servers.run(partial(self.group.recovery.enter, lane=self.number), then)

    def begin(self, result: Entered) -> None:
        world, limits = self.world, self.world.scenario.limits_of_a_lane(self.group.lanes)
        machine = world.parts.machine(limits, world.scenario.failures, world.mint, world.chance.random)
        world.audit.leader_id_taken(machine.leader_id, self.number)
        self.lane = world.parts.lane(machine, self.number, self.telemetry, result)

    def close(self) -> None:
        self._sender.close()

    def check_bounds(self) -> None:
        assert self.lane is not None
        world, machine = self.world, self.lane.machine
        limits = world.scenario.limits_of_a_lane(self.group.lanes)
        board = machine.scoreboard
        known = machine.in_flight + board.waiting - board.crowded
        if machine.in_flight > limits.max_in_flight_records:
            raise Violation("I10", f"{machine.in_flight} records are in flight", lane=self.number)
        self._aside = max(self._aside, board.aside)
        if known > limits.max_in_flight_records + limits.send_buffer + self._aside:
            raise Violation("I10", f"{known} records are known", lane=self.number)
        if board.crowded + board.held > world.scenario.most_keys * (known_of_a_key(limits)):
            raise Violation(
                "I10", f"{board.crowded + board.held} rows of crowded or held keys", lane=self.number
            )
        if board.bytes > limits.max_lane_bytes:
            raise Violation("I10", f"{board.bytes} bytes are known", lane=self.number)

    def check_rest(self) -> None:
        if self.lane is None:
            return
        machine, board = self.lane.machine, self.lane.machine.scoreboard
        if machine.in_flight or board.waiting or board.crowded or board.held or board.bytes or board.ready:
            text = f"at rest {machine.in_flight} in flight, {board.waiting} waiting, "
            text += f"{board.held} held, {board.bytes} bytes"
            raise Violation("I10", text, lane=self.number)

    # --- what the producer tells --------------------------------------------------------------------

    def delivered(self, record: MarkedRecord) -> None:
        self.world.tell(self, record.key, "hears that %d was delivered", record.id)
        self.reply(Deliveries(delivered=[record]))

    def undelivered(self, failure: Failure) -> None:
        record = failure.record
        self.world.tell(self, record.key, "hears that %d was not delivered: %s", record.id, failure.reason)
        self.reply(Deliveries(failed=[failure]))


def known_of_a_key(limits: Limits) -> int:
    """Returns how many rows of one key a lane may know: what fills it, and what two marks may bring."""
    return max(1, (limits.max_in_flight_records + limits.send_buffer) // 16) + 2 * limits.mark_query_records


class MarkExecutor(DatabaseExecutor):
    """The connection that marks, and that enters the lane anew."""

    _run: RecordLane

    def submit(self, request: Request) -> None:
        """See :meth:`outbox_core.lanes.turn.Executor.submit`."""
        if not isinstance(request, Refresh):
            super().submit(request)
            return
        run, leader_id = self._run, request.leader_id
        run.world.tell(run, None, "takes leader id %s", leader_id)
        run.world.audit.counts["remarks"] += 1
        run.world.audit.leader_id_taken(leader_id, run.number)
        run.enter(partial(self._entered, request))

    def _entered(self, request: Refresh, result: Entered | OutboxError) -> None:
        if isinstance(result, OutboxError):
            self._run.reply(Answer(request, error=result))
        else:
            self._run.world.tell(self._run, None, "entered with %s", result.fence)
            self._run.reply(Answer(request, fence=result.fence, parked=result.parked))


class SenderExecutor:
    """The thread that sends: records may wait for it, and the gate of ``lanes/turn.py`` decides then."""

    def __init__(self, run: RecordLane) -> None:
        self._run = run
        self._control = run.group.control
        self._gate = run.world.parts.gate(self._leading)
        self._free_at = 0.0

    def submit(self, request: Request) -> None:
        """See :meth:`outbox_core.lanes.turn.Executor.submit`."""
        if not isinstance(request, Send):
            raise TypeError(f"{request} is not for the broker")
        world = self._run.world
        if self._free_at <= world.scheduler.now and not world.broker.clogged:
            self._send(request.records)
        else:
            self._free_at = max(self._free_at, world.scheduler.now + world.broker.clog())
            world.scheduler.at(self._free_at, self._run.host.do, self._send, request.records)

    def close(self) -> None:
        """Drops what waits, and what has not left the host."""
        self._gate.closed = True
        self._run.producer.close()

    def _leading(self) -> bool:
        return self._run.host.clock() < self._control.lease_until

    def _send(self, records: list[MarkedRecord]) -> None:
        run = self._run
        sending, failed = self._gate.admit(records)
        if sending:
            self._check_right()
            if run.world.trace is not None:
                for record in sending:
                    run.world.tell(run, record.key, "sends %d", record.id)
            run.producer.send(sending)
        if failed:
            run.world.audit.counts["records not sent as the lease ended"] += len(failed)
            run.reply(Deliveries(failed=failed))

    def _check_right(self) -> None:
        """I11: nothing is sent by a lane that has ended, or whose lease has."""
        if self._run.ended or not self._leading():
            raise Violation("I11", f"{self._run.name} sends, and its lease has ended", lane=self._run.number)
