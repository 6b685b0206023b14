"""One lane on real servers, which drains its outbox in the calling thread.

The lane and its drivers are those of a harvester. Only the threads are absent: each request is answered
before the next is made, and records are answered when the broker has acknowledged all of them. So the lane
makes the same requests on every machine.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from outbox_api import Deliveries, PermittedTopics
from outbox_core.config.reader import configure
from outbox_core.config.settings import Delivery
from outbox_core.delivery.at_least_once import MarkPurgeReset
from outbox_core.delivery.commands import Answer, Publish, Purge, Request, Send
from outbox_core.delivery.exactly_once import SelectPublishPurge
from outbox_core.lanes.lane import AtLeastOnceLane, ExactlyOnceLane
from outbox_core.lanes.plan import Plan
from outbox_core.lanes.recovery import begin_leadership, enter_lane, open_lane
from outbox_core.lanes.telemetry import Telemetry
from outbox_core.lanes.turn import Reply, batch_executors, record_executors, take_turn
from outbox_core.lanes.workers import Database
from outbox_core.leadership.protocol import LaneControl
from outbox_kafka import producer_pool, transactional_producer
from outbox_kafka import settings as kafka_settings
from outbox_postgres import settled
from outbox_testkit.produce_requests import ProduceRequests

FOREVER = float("inf")
"""Milliseconds between two reports of librdkafka."""
LINGER_MS = 60_000
"""Milliseconds for which librdkafka lingers, unless it is flushed."""
TELL_SECONDS = 1.1
"""For so long a session of PostgreSQL may keep to itself what it did."""


class Memory(NamedTuple):
    """Blocks of Python's memory, and records of the lane in them, at one moment."""

    records: int
    blocks: int


class DrainedLane:
    """A lane that drains its outbox.

    Args:
        lane: The lane.
        databases: Execute its requests to the database: purges, and all others.
        publish: Executes its requests to the broker.
        produce_requests: Returns how many requests with records were sent.

    Attributes:
        fullest: The moment of the last drain at which the lane had most records in memory.
        produce_requests: As given.
    """

    def __init__(
        self,
        lane: AtLeastOnceLane | ExactlyOnceLane,
        databases: tuple[Database, Database],
        publish: Callable[[Any], Reply],
        produce_requests: Callable[[], int],
    ) -> None:
        self._lane = lane
        self._databases = databases
        self._publish = publish
        self._replies: list[Reply] = []
        self._now = 0.0
        self.produce_requests = produce_requests
        self.fullest = Memory(0, 0)

    def submit(self, request: Request) -> None:
        """Executes a request at once; see :class:`outbox_core.lanes.turn.Executor`."""
        if isinstance(request, Publish | Send):
            self.fullest = max(self.fullest, Memory(self._in_memory(), sys.getallocatedblocks()))
            self._replies.append(self._publish(request))
        else:
            purger, marker = self._databases
            self._replies.append((purger if isinstance(request, Purge) else marker).execute(request))

    def drain(self, rows: int) -> None:
        """Takes turns until so many rows more are purged. What is garbage meanwhile stays in memory."""
        lane, metrics = self._lane, self._lane._telemetry.metrics
        batches = isinstance(lane, ExactlyOnceLane)
        executors = batch_executors(self, self) if batches else record_executors(self, self, self)
        self.fullest, wanted = Memory(0, 0), metrics.purged + rows
        gc.disable()
        try:
            while metrics.purged < wanted:
                replies, self._replies = self._replies, []
                patience = take_turn(lane, LaneControl(FOREVER), self._clock, executors, replies)
                self._now += patience or 0.0
        finally:
            gc.enable()

    def blocks(self) -> int:
        """Returns how many blocks of memory Python uses, without garbage."""
        gc.collect()
        return sys.getallocatedblocks()

    def settle(self) -> None:
        """Has PostgreSQL count what the lane's sessions did; they tell it once a second."""
        time.sleep(TELL_SECONDS)
        for database in self._databases:
            if database._table is not None:
                database._table.parked()

    def _clock(self) -> float:
        return self._now

    def _in_memory(self) -> int:
        machine = self._lane.machine
        waiting = machine.scoreboard.waiting if isinstance(machine, MarkPurgeReset) else machine.waiting
        return machine.in_flight + waiting


@contextmanager
def open_lane_of(harvest: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[DrainedLane]:
    """Begins a leadership of one lane.

    Args:
        harvest: The settings, as below ``harvest:``.
        monkeypatch: Replaces what depends on time, and the function that creates producers.
    """
    requests = ProduceRequests()

    def producer(settings: Mapping[str, Any]) -> Producer:
        return Producer({**settings, **requests.settings})

    # A batch or a wave is handed over within the time for which the client lingers, also on a busy machine.
    monkeypatch.setitem(kafka_settings._DEFAULTS, "linger.ms", LINGER_MS)
    monkeypatch.setitem(kafka_settings._DEFAULTS, "delivery.timeout.ms", 2 * LINGER_MS)
    # Looks at the sequence and at the head of the table depend on the number of records, not on time.
    monkeypatch.setattr(settled, "LISTING_INTERVAL", FOREVER)
    monkeypatch.setattr(settled, "HEAD_INTERVAL", FOREVER)
    monkeypatch.setattr(producer_pool, "Producer", producer)
    monkeypatch.setattr(transactional_producer, "Producer", producer)
    settings = configure({"harvest": harvest}).harvest
    token = begin_leadership(settings).token
    plan = Plan(
        settings.outbox,
        token,
        1,
        settings.dialect,
        settings.affinity,
        settings.publisher,
        settings.limits,
        settings.failures,
        settings.delivery,
    )
    with ExitStack() as stack:
        open_lane = _open_batches if settings.delivery is Delivery.EXACTLY_ONCE else _open_records
        lane, publish, poll = open_lane(plan, stack)

        def connect() -> Database:
            database = Database(
                plan.dialect.create(),
                (),
                lambda: lane.fence,
                lanes=1,
                token=token,
                about=dict,
                topics=PermittedTopics(),
            )
            return stack.enter_context(closing(database))

        yield DrainedLane(lane, (connect(), connect()), publish, partial(requests.count, poll))


_Opened = tuple[AtLeastOnceLane | ExactlyOnceLane, Callable[[Any], Reply], Callable[[float], object]]


def _open_records(plan: Plan, stack: ExitStack) -> _Opened:
    machine = MarkPurgeReset(plan.limits, plan.failures, uuid4, lambda: 0.5)
    entered, _, table = enter_lane(plan, 0)
    table.close()
    lane = AtLeastOnceLane(machine, 0, Telemetry(0, FOREVER, 0.0), entered)
    sender = plan.publisher.create().open(f"{plan.outbox}.0")
    stack.callback(sender.close, 0.0)

    def send(request: Send) -> Deliveries:
        sender.send(request.records)
        done = Deliveries()
        while len(done.delivered) < len(request.records):
            reported = sender.poll(1.0)
            assert not reported.failed
            done.delivered.extend(reported.delivered)
        return done

    return lane, send, sender.poll


def _open_batches(plan: Plan, stack: ExitStack) -> _Opened:
    sender: Any
    opened, sender, table = open_lane(plan, 0)
    table.close()
    stack.callback(sender.close)
    machine = SelectPublishPurge(plan.limits, plan.failures, lambda: 0.5)
    lane = ExactlyOnceLane(machine, 0, Telemetry(0, FOREVER, 0.0), opened, FOREVER)

    def publish(request: Publish) -> Answer:
        return Answer(request, failures=sender.publish(request.records, request.checkpoint))

    return lane, publish, sender._sender._producer._client.poll
