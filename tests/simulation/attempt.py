"""Attempts at lanes of either kind: the shipping lane and how it begins, between what is simulated.

Does what ``outbox_core.lanes.loop`` does, in virtual time: carries out what the lane asks for, and lets it
hear what comes of it. Each connection to the database, and the producer, takes one request after the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from outbox_core.delivery.commands import (
    Answer,
    EndTransactions,
    Heartbeat,
    Publish,
    Purge,
    Refresh,
    Request,
    Send,
)
from outbox_core.delivery.recovery import Entered, Opened
from outbox_core.lanes.lane import AtLeastOnceLane, ExactlyOnceLane, Reply
from outbox_core.lanes.telemetry import Telemetry
from outbox_core.leadership.protocol import REPORT_SECONDS
from outbox_sdk import Deliveries, DriverError, Failure, Fence, LeadershipLost, MarkedRecord, OutboxError

from . import fencing
from .broker import Producer
from .database import FAILED, LOST
from .desk import Desk, Work
from .recovery import Driver
from .scheduler import Host
from .sender import UNKNOWN, TransactionalProducer
from .trail import Session, Violation

if TYPE_CHECKING:
    from .group import Group
    from .world import World

MOST_BATCHES = 4
"""Purged, published, being published, marked: one of each."""


class Attempt(ABC):
    """One attempt, from entering the lane until its group is told to stop or something fails.

    Args:
        group: The group it runs in.
        number: The lane's number.

    Attributes:
        producer: Its session.
        lane: What decides; ``None`` until the lane has begun.
        fence: Its right to work; ``None`` while it has none.
    """

    producer: Session
    lane: AtLeastOnceLane | ExactlyOnceLane | None

    def __init__(self, group: Group, number: int) -> None:
        self.world: World = group.world
        self.group, self.number = group, number
        world = self.world
        self.host: Host = group.host
        self.ended = False
        self.fence: Fence | None = None
        self.lane = None
        world.sessions += 1
        self.name = f"{group.host.name}/lane {number}/session {world.sessions}"
        self.started = self.host.clock()
        self.telemetry = Telemetry(number, REPORT_SECONDS, self.started)
        self.checkpoint = Desk(self)
        self._replies: list[Reply] = []
        self._due = float("inf")

    # --- what the kinds do differently --------------------------------------------------------------

    @abstractmethod
    def begin(self, result: Any) -> None:
        """Takes what the recovery returned: the lane may begin."""

    @abstractmethod
    def carry_out(self, request: Request) -> None:
        """Carries out a request to the broker, or one of this kind alone."""

    @abstractmethod
    def check_bounds(self) -> None:
        """I10: what the lane holds is bounded."""

    @abstractmethod
    def check_rest(self) -> None:
        """I10: with an empty outbox the lane knows nothing and holds nothing."""

    @abstractmethod
    def close(self) -> None:
        """Takes that the attempt has ended."""

    # --- the loop -----------------------------------------------------------------------------------

    def begun(self, result: Entered | Opened | LeadershipLost | DriverError) -> None:
        """Takes what came of the recovery."""
        if self.ended:
            return
        if isinstance(result, LeadershipLost):
            self.lose()
        elif isinstance(result, DriverError):
            self.end(f"could not begin: {result}", result)
        else:
            self.fence = result.fence
            self.world.tell(self, None, "begins with %s", self.fence)
            self.begin(result)
            self.step()

    def step(self) -> None:
        """One turn of the lane's loop."""
        control, now = self.group.control, self.host.clock()
        if self.ended or self.lane is None:
            return
        if control.stopped:
            self.end("told to")
            return
        try:
            replies, self._replies = self._replies, []
            for reply in replies:
                self._hear(self.lane, now, reply)
            while requests := self.lane.step(now, control):
                for request in requests:
                    self._submit(request)
        except LeadershipLost:
            self.lose()
        except DriverError as error:
            self.end(str(error), error)
        else:
            self._rest(self.lane, now)

    def _hear(self, lane: AtLeastOnceLane | ExactlyOnceLane, now: float, reply: Reply) -> None:
        if isinstance(reply, Answer) and reply.fence is not None:
            self.fence = reply.fence
        lane.receive(now, reply)
        self.telemetry.take_events()  # nobody observes

    def _rest(self, lane: AtLeastOnceLane | ExactlyOnceLane, now: float) -> None:
        if lane.over:
            self.end("told to, or it has grown old")
            return
        self.check_bounds()
        self.wake(min(max(lane.wake_at() - now, 0.0005), REPORT_SECONDS))

    def _submit(self, request: Request) -> None:
        match request:
            case Heartbeat():
                count = fencing.ReadParked(self.world.database)
                self.world.wire.call(self.host, count, partial(self._counted, request))
            case Send() | Publish() | Purge() | Refresh() | EndTransactions():
                self.carry_out(request)
            case _:
                self.checkpoint.submit(request)

    def _counted(self, request: Heartbeat, parked: Any) -> None:
        if parked is FAILED:
            self.reply(Answer(request, error=DriverError("failed", retryable=True)))
        else:
            self.reply(Answer(request, parked=parked))

    def heed(self, request: Work | EndTransactions, result: Any) -> None:
        """Takes what the database answered."""
        if result is LOST:
            self.reply(Answer(request, error=LeadershipLost("the fence is another's")))
        elif result is FAILED:
            self.reply(Answer(request, error=DriverError("failed", retryable=True)))
        elif isinstance(result, int):
            self.reply(Answer(request, rows=result))
        elif result is None:
            self.reply(Answer(request))
        else:
            self.reply(Answer(request, records=result.records, rows=getattr(result, "purged", 0)))

    def reply(self, reply: Reply) -> None:
        """Keeps a reply until the lane looks: mostly at once, sometimes when more has come."""
        self._replies.append(reply)
        random = self.world.chance.random
        self.wake(random() * 0.004 if random() < 0.2 else 0.0)

    def wake(self, delay: float) -> None:
        """Has the lane look after ``delay`` seconds, if it would not sooner."""
        due = self.world.scheduler.now + delay
        if due < self._due:
            self._due = due
            self.world.scheduler.at(due, self.host.do, self._woken, due)

    def _woken(self, due: float) -> None:
        if due == self._due:
            self._due = float("inf")
            self.step()
        else:  # somebody woke it before
            self.world.scheduler.steps -= 1

    def lose(self) -> None:
        """Takes that the fence is another's: the whole group stops."""
        self.group.lose(f"lane {self.number}")
        self.end("fenced")

    def end(self, why: str, error: DriverError | None = None) -> None:
        """Ends the attempt; the group starts another unless it was told to stop."""
        if not self.ended:
            self.ended = True
            self.world.tell(self, None, "ends: %s", why)
            self.close()
            self.group.ended(self.number, error)


class RecordAttempt(Attempt):
    """An attempt at a lane of at-least-once delivery."""

    lane: AtLeastOnceLane | None
    producer: Producer

    def __init__(self, group: Group, number: int) -> None:
        super().__init__(group, number)
        world = self.world
        self.producer = world.parts.producer(world.broker, self.host, number, self.name, self)
        self.producer.token = group.token
        self.purger = Desk(self)
        self._enter(self.begun)

    def _enter(self, then: Any) -> None:
        driver = Driver(self.world, self.host, self.group.settings, self.producer)
        driver.run(self.group.recovery.enter(self.number), then)

    def begin(self, result: Entered) -> None:
        world, limits = self.world, self.world.scenario.limits_of_a_lane(self.group.lanes)
        machine = world.parts.machine(limits, world.scenario.failures, world.mint, world.chance.random)
        world.audit.leader_id_taken(machine.leader_id, self.number)
        self.lane = world.parts.lane(machine, self.number, self.telemetry, result.parked)

    def carry_out(self, request: Request) -> None:
        match request:
            case Send(records):
                if self.world.trace is not None:
                    for record in records:
                        self.world.tell(self, record.key, "sends %d", record.id)
                self.producer.send(records)
            case Purge():
                self.purger.submit(request)
            case Refresh(leader_id):
                self.world.tell(self, None, "takes leader id %s", leader_id)
                self.world.audit.counts["remarks"] += 1
                self.world.audit.leader_id_taken(leader_id, self.number)
                self._enter(partial(self._entered, request))

    def _entered(self, request: Refresh, result: Entered | OutboxError) -> None:
        if isinstance(result, OutboxError):
            self.reply(Answer(request, error=result))
        else:
            self.world.tell(self, None, "entered with %s", result.fence)
            self.reply(Answer(request, fence=result.fence, parked=result.parked))

    def close(self) -> None:
        self.producer.close()

    def check_bounds(self) -> None:
        assert self.lane is not None
        machine, limits = self.lane.machine, self.world.scenario.limits_of_a_lane(self.group.lanes)
        board = machine.scoreboard
        known = machine.in_flight + board.waiting - board.crowded
        if machine.in_flight > limits.max_in_flight_records:
            raise Violation("I10", f"{machine.in_flight} records are in flight", lane=self.number)
        if known > limits.max_in_flight_records + limits.send_buffer:
            raise Violation("I10", f"{known} records are known", lane=self.number)

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


class BatchAttempt(Attempt):
    """An attempt at a lane of exactly-once delivery; its end is not that of what is under way."""

    lane: ExactlyOnceLane | None
    sender: TransactionalProducer

    def __init__(self, group: Group, number: int) -> None:
        super().__init__(group, number)
        self.producer = Session(number, self.name)
        self.producer.token = group.token
        self._publishing: deque[Publish] = deque()
        self._driver = Driver(self.world, self.host, group.settings, self.producer)
        self._driver.run(group.recovery.open(number), self.begun)

    def begin(self, result: Opened) -> None:
        world, limits = self.world, self.world.scenario.limits_of_a_lane(self.group.lanes)
        self.sender = self._driver.senders[result.sender]
        machine = world.parts.batch_machine(limits, world.scenario.failures, self.mint, world.chance.random)
        expires = self.host.clock() + world.scenario.lane_seconds
        self.lane = world.parts.batch_lane(machine, self.number, self.telemetry, result.parked, expires)

    def mint(self) -> UUID:
        leader_id = self.world.mint()
        self.world.audit.leader_id_taken(leader_id, self.number)
        return cast("UUID", leader_id)

    def carry_out(self, request: Request) -> None:
        match request:
            case Publish():
                self._publishing.append(request)
                if len(self._publishing) == 1:
                    self._publish(request)
            case EndTransactions():
                assert self.fence is not None
                common = (self.world.database, self.producer, self.fence, None)
                note = self.world.parts.write_note(common, None)
                self.world.wire.call(self.host, note, partial(self.heed, request))

    def _publish(self, request: Publish) -> None:
        """Does what the thread that publishes does: one batch after the other."""
        world, name = self.world, request.checkpoint[-1].leader_id
        if len(request.checkpoint) >= MOST_BATCHES:
            raise Violation("I10", f"a checkpoint of {len(request.checkpoint)} batches", lane=self.number)
        if world.trace is not None:
            names = [batch.leader_id for batch in request.checkpoint]
            for record in request.records:
                world.tell(self, record.key, "publishes %d, and the checkpoint %s", record.id, names)
        self.sender.publish(
            request.records, request.checkpoint, lambda outcome: self._published(name, outcome)
        )

    def _published(self, name: object, outcome: Any) -> None:
        self.world.tell(self, None, "hears of batch %s: %s", name, outcome or "committed")
        request = self._publishing.popleft()
        if outcome is UNKNOWN:
            self.reply(Answer(request, error=DriverError("an unknown outcome", retryable=True)))
        else:
            if outcome == []:
                self.producer.trail.told.add(name)
            self.reply(Answer(request, failures=outcome))
        if self._publishing:
            self._publish(self._publishing[0])

    def close(self) -> None:
        """Leaves what is under way to the broker."""

    def check_bounds(self) -> None:
        assert self.lane is not None
        machine, most = self.lane.machine, self.world.scenario.limits.max_batch_records
        if max(machine.in_flight, machine.waiting) > most:
            text = f"{machine.in_flight} records are being published, {machine.waiting} are marked"
            raise Violation("I10", text, lane=self.number)
        if len(machine.batches()) > MOST_BATCHES:
            raise Violation("I10", f"{len(machine.batches())} batches", lane=self.number)

    def check_rest(self) -> None:
        if self.lane is not None and (batches := self.lane.machine.batches()):
            raise Violation("I10", f"at rest there are batches: {batches}", lane=self.number)
