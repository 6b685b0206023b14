"""An attempt at a lane of exactly-once delivery, and what it publishes with."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from outbox_api import Failure, MarkedRecord, TransactionalSender
from outbox_core.delivery.checkpoint import decode, encode
from outbox_core.delivery.size import size_of
from outbox_core.events.stages import BatchStage
from outbox_core.lanes.batch_lane import ExactlyOnceLane
from outbox_core.lanes.loops import run_batches

from .greenlets import step
from .lane_run import LaneRun
from .recovery import Servers
from .sender import TransactionalProducer
from .trail import Session, Violation, serial_of

if TYPE_CHECKING:
    from .group import Group


class BatchLane(LaneRun):
    """An attempt at a lane of exactly-once delivery; what is under way at the broker outlives it."""

    lane: ExactlyOnceLane | None

    def __init__(self, group: Group, number: int) -> None:
        super().__init__(group, number)
        self.producer = Session(number, self.name)
        self.producer.token = group.token

    def run(self) -> None:
        group, world = self.group, self.world
        servers = Servers(world, self.host, group.settings, self.producer)
        opened = servers.recover(partial(group.recovery.open, lane=self.number))
        if self.ended:
            return
        world.tell(self, None, "begins with %s", opened.fence)
        limits = world.scenario.limits_of_a_lane(group.lanes)
        machine = world.parts.batch_machine(
            limits,
            world.scenario.failures,
            world.chance.random,
            opened.locked,
            coalesced=world.scenario.coalesced,
        )
        lane = self.lane = world.parts.batch_lane(
            machine,
            self.number,
            self.telemetry,
            opened,
            self.host.clock() + world.scenario.lane_seconds,
            control=group.control,
            threads=self.threads,
            torn=self.producer.torn,
        )
        sender = BatchSender(self, servers.senders[opened.sender].producer)
        run_batches(lane, cast("TransactionalSender", sender), self.database(opened.purged), self.threads)

    def check_bounds(self) -> None:
        assert self.lane is not None
        machine, most = self.lane.machine, self.world.scenario.limits.max_batch_records
        if machine.in_flight > most or machine.in_flight + machine.waiting > 2 * most:
            text = f"{machine.in_flight} records are being published, {machine.waiting} are selected"
            raise Violation("I10", text, lane=self.number)
        published = [batch for batch, stage in machine.batches() if stage is BatchStage.PUBLISHED]
        # The last of them was attempted beside the others.
        if published and len(encode(published[:-1], published[-1])) > self.world.scenario.characters:
            raise Violation("I10", f"{len(published)} batches are published and not purged", lane=self.number)

    def check_rest(self) -> None:
        if self.lane is not None and (batches := self.lane.machine.batches()):
            raise Violation("I10", f"at rest there are batches: {batches}", lane=self.number)


class BatchSender:
    """What a lane publishes with; as much of an :class:`outbox_api.TransactionalSender` as lanes call."""

    def __init__(self, run: BatchLane, producer: TransactionalProducer) -> None:
        self._run = run
        self._producer = producer

    def publish(self, records: Sequence[MarkedRecord], checkpoint: str) -> list[Failure]:
        run = self._run
        world = run.world
        with world.scheduler.reporting():
            self._check_bounds(records)
        if world.trace is not None:
            for record in records:
                number = f"{record.id} ({serial_of(record)})"
                text = "publishes %s, and the checkpoint %s"
                world.tell(run, record.key, text, number, decode(checkpoint))

        failures: list[Failure] = step(partial(self._producer.publish, records, checkpoint))
        world.tell(run, None, "hears of the batch from %s on: %s", records[0].id, failures or "committed")
        if not failures:
            run.producer.trail.told.update(record.id for record in records)
        return failures

    def close(self) -> None:
        """Leaves what is under way to the broker."""

    def _check_bounds(self, records: Sequence[MarkedRecord]) -> None:
        number, limits = self._run.number, self._run.world.scenario.limits
        if (size := sum(map(size_of, records))) > limits.max_lane_bytes // 2:
            raise Violation("I10", f"a batch of {size} bytes", lane=number)
