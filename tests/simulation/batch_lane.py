"""An attempt at a lane of exactly-once delivery, and the thread that publishes for it."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from outbox_api import DriverError
from outbox_core.delivery.checkpoint import decode, encode
from outbox_core.delivery.commands import Answer, Publish, Request
from outbox_core.delivery.recovery import Opened
from outbox_core.delivery.size import size_of
from outbox_core.delivery.stages import BatchStage
from outbox_core.lanes.lane import ExactlyOnceLane
from outbox_core.lanes.turn import batch_executors

from .lane_run import DatabaseExecutor, LaneRun
from .recovery import Servers
from .sender import UNKNOWN, TransactionalProducer
from .trail import Session, Violation, serial_of

if TYPE_CHECKING:
    from .group import Group


class BatchLane(LaneRun):
    """An attempt at a lane of exactly-once delivery; what is under way at the broker outlives it."""

    lane: ExactlyOnceLane | None
    sender: TransactionalProducer

    def __init__(self, group: Group, number: int) -> None:
        super().__init__(group, number)
        self.producer = Session(number, self.name)
        self.producer.token = group.token
        self._database = DatabaseExecutor(self)
        self.executors = batch_executors(self._database, PublisherExecutor(self))
        self._servers = Servers(self.world, self.host, group.settings, self.producer)
        self._servers.run(partial(group.recovery.open, lane=number), self.begun)

    def begin(self, result: Opened) -> None:
        world, limits = self.world, self.world.scenario.limits_of_a_lane(self.group.lanes)
        self.sender = self._servers.senders[result.sender].producer
        self._database.purged(result.purged)
        machine = world.parts.batch_machine(
            limits, world.scenario.failures, world.chance.random, result.locked
        )
        expires = self.host.clock() + world.scenario.lane_seconds
        torn = self.producer.torn
        self.lane = world.parts.batch_lane(machine, self.number, self.telemetry, result, expires, torn=torn)

    def close(self) -> None:
        """Leaves what is under way to the broker."""

    def check_bounds(self) -> None:
        assert self.lane is not None
        machine, most = self.lane.machine, self.world.scenario.limits.max_batch_records
        if max(machine.in_flight, machine.waiting) > most:
            text = f"{machine.in_flight} records are being published, {machine.waiting} are selected"
            raise Violation("I10", text, lane=self.number)
        published = [batch for batch, stage in machine.batches() if stage is BatchStage.PUBLISHED]
        # The last of them was attempted beside the others.
        if published and len(encode(published[:-1], published[-1])) > self.world.scenario.characters:
            raise Violation("I10", f"{len(published)} batches are published and not purged", lane=self.number)

    def check_rest(self) -> None:
        if self.lane is not None and (batches := self.lane.machine.batches()):
            raise Violation("I10", f"at rest there are batches: {batches}", lane=self.number)


class PublisherExecutor:
    """The thread that publishes: one batch after the other."""

    def __init__(self, run: BatchLane) -> None:
        self._run = run
        self._requests: deque[Publish] = deque()

    def submit(self, request: Request) -> None:
        """See :meth:`outbox_core.lanes.turn.Executor.submit`."""
        if not isinstance(request, Publish):
            raise TypeError(f"{request} is not for the broker")
        self._requests.append(request)
        if len(self._requests) == 1:
            self._publish(request)

    def _publish(self, request: Publish) -> None:
        run = self._run
        world = run.world
        self._check_bounds(request)
        if world.trace is not None:
            checkpoint = decode(request.checkpoint)
            for record in request.records:
                number = f"{record.id} ({serial_of(record)})"
                world.tell(run, record.key, "publishes %s, and the checkpoint %s", number, checkpoint)
        run.sender.publish(request.records, request.checkpoint, self._published)

    def _check_bounds(self, request: Publish) -> None:
        number, limits = self._run.number, self._run.world.scenario.limits
        if (size := sum(map(size_of, request.records))) > limits.max_lane_bytes // 2:
            raise Violation("I10", f"a batch of {size} bytes", lane=number)

    def _published(self, outcome: Any) -> None:
        run = self._run
        request = self._requests.popleft()
        number = request.records[0].id
        run.world.tell(run, None, "hears of the batch from %s on: %s", number, outcome or "committed")
        if outcome is UNKNOWN:
            run.reply(Answer(request, error=DriverError("an unknown outcome", retryable=True)))
        else:
            if outcome == []:
                run.producer.trail.told.update(record.id for record in request.records)
            run.reply(Answer(request, failures=outcome))
        if self._requests:
            self._publish(self._requests[0])
