"""One lane on real servers, which drains its outbox in the calling thread.

The lane and its drivers are those of a harvester. Only the threads are absent: its loops take turns, and
records are answered when the broker has acknowledged all of them. So the lane makes the same requests on
every machine.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from outbox_api import Deliveries, PermittedTopics
from outbox_core.config.reader import configure
from outbox_core.control.protocol import LaneControl
from outbox_core.delivery.at_least_once import MarkPurgeReset
from outbox_core.delivery.commands import Publish
from outbox_core.delivery.exactly_once import SelectPublishPurge
from outbox_core.lanes.batch_lane import ExactlyOnceLane
from outbox_core.lanes.database import Database
from outbox_core.lanes.lane import Join, Threads, Work
from outbox_core.lanes.plan import Plan
from outbox_core.lanes.record_lane import AtLeastOnceLane, Sending
from outbox_core.lanes.recovery import begin_leadership, enter_lane, open_lane
from outbox_core.lanes.telemetry import Telemetry
from outbox_core.settings import Delivery
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


class Waits(Exception):  # noqa: N818 - it is no error
    """A loop has nothing to do."""


class NoThreads(Threads):
    """What the lane runs on: the calling thread, which never waits, and a clock that is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def lock(self, conditions: int) -> tuple[AbstractContextManager[object], list[NoThreads]]:
        return nullcontext(), [self] * conditions

    def wait(self, timeout: float) -> None:
        raise Waits

    def notify(self) -> None:
        """Nobody waits."""

    def spawn(self, run: Callable[[], None], name: str) -> Join:
        raise TypeError(f"{name} is not started")


class Turn:
    """One of the lane's loops, as far as it goes without waiting.

    Args:
        take: Hands over what came of the last work, and returns the next.
        do: Does it, and returns what came of it.
    """

    def __init__(self, take: Callable[[Any], Any], do: Callable[[Any], Any]) -> None:
        self._take = take
        self._do = do
        self._done: Any = None

    def go(self) -> bool:
        """Does what is due; returns whether anything was."""
        done, self._done = self._done, None
        try:
            work = self._take(done)
        except Waits:
            return False
        self._done = self._do(work)
        return True

    def settle(self, now: float) -> None:
        """Tells the lane at once what came of the last work, if it was done at the database."""
        if callable(self._done):
            self._done(now)
            self._done = None


class DrainedLane:
    """A lane that drains its outbox.

    Args:
        lane: The lane.
        threads: What it runs on.
        databases: Its connections.
        produce_requests: Returns how many requests with records were sent.

    Attributes:
        turns: Its loops.
        fullest: The moment of the last drain at which the lane had most records in memory.
        produce_requests: As given.
    """

    def __init__(
        self,
        lane: AtLeastOnceLane | ExactlyOnceLane,
        threads: NoThreads,
        databases: Sequence[Database],
        produce_requests: Callable[[], int],
    ) -> None:
        self.turns: list[Turn] = []
        self._lane = lane
        self._threads = threads
        self._databases = databases
        self.produce_requests = produce_requests
        self.fullest = Memory(0, 0)

    @staticmethod
    def work(database: Database, work: Work) -> Callable[[float], None]:
        """Does something at the database; returns what tells the lane."""
        return partial(work.run(database), 0.0)

    def drain(self, rows: int) -> None:
        """Takes turns until so many rows more are purged. What is garbage meanwhile stays in memory."""
        metrics, threads = self._lane.telemetry.metrics, self._threads
        self.fullest, wanted = Memory(0, 0), metrics.purged + rows
        gc.disable()
        try:
            while metrics.purged < wanted:
                if not sum(turn.go() for turn in self.turns):
                    threads.now = max(threads.now, min(loop.due() for loop in self._lane._loops))
        finally:
            gc.enable()

    def look(self) -> None:
        """Takes note of how much is in memory; the lane knows it all then."""
        for turn in self.turns:
            turn.settle(self._threads.now)
        self.fullest = max(self.fullest, Memory(self._in_memory(), sys.getallocatedblocks()))

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
        lane, poll = open_lane(plan, stack)
        lane.produce_requests = partial(requests.count, poll)
        yield lane


_Opened = tuple[DrainedLane, Callable[[float], object]]


def _connect(plan: Plan, stack: ExitStack) -> Database:
    database = Database(plan.dialect.create().connect, PermittedTopics())
    return stack.enter_context(closing(database))


def _open_records(plan: Plan, stack: ExitStack) -> _Opened:
    machine = MarkPurgeReset(plan.limits, plan.failures, uuid4, lambda: 0.5)
    entered, _, table = enter_lane(plan, 0)
    table.close()
    threads, telemetry = NoThreads(), Telemetry(0, FOREVER, 0.0)
    lane = AtLeastOnceLane(
        machine, 0, telemetry, entered, control=LaneControl(FOREVER), threads=threads, lanes=1
    )
    sender = plan.publisher.create().open(f"{plan.outbox}.0")
    stack.callback(sender.close, 0.0)
    purging, marking = _connect(plan, stack), _connect(plan, stack)
    drained = DrainedLane(lane, threads, (purging, marking), lambda: 0)

    def send(sending: Sending) -> Deliveries | None:
        records = sending.records.alone
        if not records:
            return None
        drained.look()
        sender.send(records)
        done = Deliveries()
        while len(done.delivered) < len(records):
            reported = sender.poll(1.0)
            assert not reported.failed
            done.delivered.extend(reported.delivered)
        return done

    drained.turns = [
        Turn(lane.next_to_send, send),
        Turn(lane.next_for_purger, partial(drained.work, purging)),
        Turn(lane.next_for_marker, partial(drained.work, marking)),
    ]
    return drained, sender.poll


def _open_batches(plan: Plan, stack: ExitStack) -> _Opened:
    sender: Any
    opened, sender, table = open_lane(plan, 0)
    table.close()
    stack.callback(sender.close)
    machine = SelectPublishPurge(plan.limits, plan.failures, lambda: 0.5)
    threads, telemetry = NoThreads(), Telemetry(0, FOREVER, 0.0)
    lane = ExactlyOnceLane(
        machine, 0, telemetry, opened, FOREVER, control=LaneControl(FOREVER), threads=threads
    )
    advancing = _connect(plan, stack)
    drained = DrainedLane(lane, threads, (advancing,), lambda: 0)

    def publish(publish: Publish) -> Callable[[float], None]:
        drained.look()
        failures = sender.publish(publish.records, publish.checkpoint)
        return partial(lane.published, publish, failures, 0.0)

    drained.turns = [
        Turn(lane.next_to_publish, publish),
        Turn(lane.next_for_database, partial(drained.work, advancing)),
    ]
    return drained, sender._sender._producer._client.poll
