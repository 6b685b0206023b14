"""One attempt at one lane of at-least-once delivery: the real state machine, between what is simulated.

Does what ``outbox_core.lanes.lane`` and ``outbox_core.lanes.table_thread`` do: marks, resets and parks go one
after the other over one connection, purges over another, and a remark waits for its new attempt at the fence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outbox_core.delivery.at_least_once import MarkPurgeReset
from outbox_core.delivery.commands import Command, Mark, Park, Purge, Refresh, Reset, Send
from outbox_core.delivery.recovery import Entered
from outbox_sdk import Failure, LeadershipLost, MarkedRecord, OutboxError

from .attempt import Attempt
from .broker import Producer
from .database import FAILED
from .desk import Desk, Work
from .recovery import Driver
from .trail import Violation

if TYPE_CHECKING:
    from .group import Group


class Lane(Attempt):
    """See :class:`tests.simulation.attempt.Attempt`."""

    machine: MarkPurgeReset
    producer: Producer

    def __init__(self, group: Group, number: int) -> None:
        super().__init__(group, number)
        world = self.world
        self.producer = world.parts.producer(world.broker, self.host, number, self.name, self)
        self.producer.token = group.token
        self.machine = world.parts.machine(
            world.scenario.limits_of_a_lane(group.lanes),
            world.scenario.failures,
            self.mint,
            world.chance.random,
        )
        self.marker = Desk(self)
        self.purger = Desk(self)
        self._delivered: list[MarkedRecord] = []
        self._undelivered: list[Failure] = []
        self._deferred: list[Command] = []
        self.enter()

    def enter(self) -> None:
        """Takes a new attempt at the fence; the lane waits for it."""
        self.fence = None
        steps = self.group.recovery.enter(self.number)
        Driver(self.world, self.host, self.group.settings, self.producer).run(steps, self._entered)

    def _entered(self, result: Entered | OutboxError) -> None:
        if self.ended:
            return
        if isinstance(result, LeadershipLost):
            self.lose()
        elif isinstance(result, OutboxError):
            self.end("an error on entering")
        else:
            self.fence, self.machine.scoreboard.policy.parked = result.fence, result.parked.keys
            self.world.tell(self, None, "entered with %s", self.fence)
            deferred, self._deferred = self._deferred, []
            if self.carry_out(deferred):
                self.step()

    def take(self, now: float) -> None:
        if self._delivered:
            delivered, self._delivered = self._delivered, []
            self.machine.delivered(now, delivered)
        if self._undelivered:
            undelivered, self._undelivered = self._undelivered, []
            self.machine.failed(undelivered)

    def carry_out(self, commands: list[Command]) -> bool:
        """Carries out commands; returns whether that needs no wait for a new attempt at the fence."""
        for number, command in enumerate(commands):
            match command:
                case Send(records):
                    if self.world.trace is not None:
                        for record in records:
                            self.world.tell(self, record.key, "sends %d", record.id)
                    self.producer.send(records)
                case Mark() | Reset() | Park():
                    self.marker.submit(command)
                case Purge():
                    self.purger.submit(command)
                case Refresh(leader_id):
                    self.world.tell(self, None, "takes leader id %s", leader_id)
                    self.world.audit.counts["remarks"] += 1
                    self._deferred = commands[number + 1 :]
                    self.refresh()
                    if self.fence is None:
                        return False
        return True

    def refresh(self) -> None:
        self.enter()

    def heed(self, command: Work, result: Any) -> None:
        """Tells the machine what came of a command."""
        machine, now = self.machine, self.host.clock()
        match command:
            case Mark():
                if result is FAILED:
                    self.mark_failed(now)
                else:
                    machine.marked(now, result.records)
            case _ if result is FAILED:
                machine.settling_unknown(now)
            case Purge():
                machine.purged(now, result)
            case Reset():
                machine.reset_done(now)
            case Park():
                machine.park_done(now, result)
        self.soon()

    def mark_failed(self, now: float) -> None:
        self.machine.mark_unknown(now)

    def check_bounds(self) -> None:
        machine, limits = self.machine, self.world.scenario.limits_of_a_lane(self.group.lanes)
        board = machine.scoreboard
        known = machine.in_flight + board.waiting - board.crowded
        if machine.in_flight > limits.max_in_flight_records:
            raise Violation("I10", f"{machine.in_flight} records are in flight", lane=self.number)
        if known > limits.max_in_flight_records + limits.send_buffer:
            raise Violation("I10", f"{known} records are known", lane=self.number)

    def check_rest(self) -> None:
        machine, board = self.machine, self.machine.scoreboard
        if machine.in_flight or board.waiting or board.crowded or board.held or board.bytes or board.ready:
            text = f"at rest {machine.in_flight} in flight, {board.waiting} waiting, "
            text += f"{board.held} held, {board.bytes} bytes"
            raise Violation("I10", text, lane=self.number)

    # --- what the producer tells --------------------------------------------------------------------

    def delivered(self, record: MarkedRecord) -> None:
        self.world.tell(self, record.key, "hears that %d was delivered", record.id)
        self._delivered.append(record)
        self.soon()

    def undelivered(self, failure: Failure) -> None:
        record = failure.record
        self.world.tell(self, record.key, "hears that %d was not delivered: %s", record.id, failure.reason)
        self._undelivered.append(failure)
        self.soon()
