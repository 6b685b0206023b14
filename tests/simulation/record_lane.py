"""An attempt at a lane of at-least-once delivery, and what it sends with."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from greenlet import getcurrent
from outbox_api import Deliveries, Failure, MarkedRecord
from outbox_core.lanes.loops import run_records
from outbox_core.lanes.record_lane import AtLeastOnceLane
from outbox_core.settings import Limits

from .broker import Producer
from .greenlets import Sleeper
from .lane_run import LaneRun
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
        self._sender = RecordSender(self)
        self._aside = (
            0  # most keys that waited for locked rows, of each of which a record may be ready at once
        )
        self._own: object = None

    def run(self) -> None:
        self._own = getcurrent()
        group, world = self.group, self.world
        servers = Servers(world, self.host, group.settings, self.producer)
        entered = servers.recover(partial(group.recovery.enter, lane=self.number))
        if self.ended:
            return
        world.tell(self, None, "begins with %s", entered.fence)
        machine = world.parts.machine(
            world.scenario.limits_of_a_lane(group.lanes),
            world.scenario.failures,
            world.mint,
            world.chance.random,
            run_records=world.audit.run_records,
            coalesced=world.scenario.coalesced,
        )
        world.audit.leader_id_taken(machine.leader_id, self.number)
        lane = self.lane = world.parts.lane(
            machine,
            self.number,
            self.telemetry,
            entered,
            control=group.control,
            threads=self.threads,
            lanes=group.lanes,
        )
        run_records(lane, self._sender, self.database(), self.database(), self.threads)

    def pause(self) -> float:
        """Has records also wait for the client that sends them."""
        broker = self.world.broker
        if broker.clogged and getcurrent() is self._own:
            return broker.clog()
        return super().pause()

    def leading(self) -> bool:
        """Returns whether it may send at this moment."""
        return self.lane is not None and self.lane.may_work()

    def check_right(self) -> None:
        """I11: nothing is sent by a lane that has ended, or whose lease has."""
        ended = self.ended or self.lane is None or self.lane.over
        if ended or self.host.clock() >= self.group.control.lease_until:
            raise Violation("I11", f"{self.name} sends, and its lease has ended", lane=self.number)

    def check_bounds(self) -> None:
        assert self.lane is not None
        world, machine = self.world, self.lane.machine
        limits = world.scenario.limits_of_a_lane(self.group.lanes)
        board = machine.scoreboard
        known = board.waiting - board.crowded - board.following
        if world.audit.run_records == 1:  # a run may take crowded ones into flight
            known += machine.in_flight
        if machine.in_flight + board.following > limits.max_in_flight_records:
            raise Violation("I10", f"{machine.in_flight} records are in flight", lane=self.number)
        self._aside = max(self._aside, board.aside)
        if known > limits.max_in_flight_records + limits.send_buffer + self._aside:
            raise Violation("I10", f"{known} records are known", lane=self.number)
        if board.crowded + board.held.rows > world.scenario.most_keys * (known_of_a_key(limits)):
            raise Violation(
                "I10", f"{board.crowded + board.held.rows} rows of crowded or held keys", lane=self.number
            )
        if board.bytes > limits.max_lane_bytes:
            raise Violation("I10", f"{board.bytes} bytes are known", lane=self.number)

    def check_rest(self) -> None:
        if self.lane is None:
            return
        machine, board = self.lane.machine, self.lane.machine.scoreboard
        known = board.waiting or board.crowded or board.held.rows or board.bytes or board.ready
        if machine.in_flight or known:
            text = f"at rest {machine.in_flight} in flight, {board.waiting} waiting, "
            text += f"{board.held.rows} held, {board.bytes} bytes"
            raise Violation("I10", text, lane=self.number)

    # --- what the producer tells --------------------------------------------------------------------

    def delivered(self, record: MarkedRecord) -> None:
        self.world.tell(self, record.key, "hears that %d was delivered", record.id)
        self._sender.report(Deliveries(delivered=[record]))

    def undelivered(self, failure: Failure) -> None:
        record = failure.record
        self.world.tell(self, record.key, "hears that %d was not delivered: %s", record.id, failure.reason)
        self._sender.report(Deliveries(failed=[failure]))


def known_of_a_key(limits: Limits) -> int:
    """Returns how many rows of one key a lane may know: what fills it, and what two marks may bring."""
    return max(1, (limits.max_in_flight_records + limits.send_buffer) // 16) + 2 * limits.mark_query_records


class RecordSender:
    """What a lane sends with; an :class:`outbox_api.Sender`."""

    def __init__(self, run: RecordLane) -> None:
        self._run = run
        self._reports = Deliveries()
        self._polling = Sleeper(run.host)

    def report(self, reports: Deliveries) -> None:
        """Keeps a report for the next poll."""
        self._reports.delivered += reports.delivered
        self._reports.failed += reports.failed
        self._polling.wake()

    def send(self, records: Sequence[MarkedRecord]) -> None:
        run = self._run
        with run.host.scheduler.reporting():
            run.check_right()
            if run.world.trace is not None:
                for record in records:
                    run.world.tell(run, record.key, "sends %d", record.id)
            run.producer.send([*records])

    def send_runs(self, first: Sequence[MarkedRecord], others: Sequence[MarkedRecord]) -> None:
        run = self._run
        with run.host.scheduler.reporting():
            run.check_right()
            if run.world.trace is not None:
                for record in (*first, *others):
                    run.world.tell(run, record.key, "sends %d as part of a run", record.id)
            run.producer.send_runs(first, others)

    def poll(self, timeout: float) -> Deliveries:
        if timeout and not (self._reports.delivered or self._reports.failed):
            self._polling.sleep(timeout)
        reports, self._reports = self._reports, Deliveries()
        return reports

    def close(self, timeout: float) -> Deliveries:
        """Drops what has not left the host."""
        self._run.producer.close()
        return Deliveries()
