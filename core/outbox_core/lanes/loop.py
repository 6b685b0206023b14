"""One lane's threads: its own takes turns (:mod:`outbox_core.lanes.turn`), the others execute requests.

The lane's own thread only decides. Other threads call the database and the broker
(:mod:`outbox_core.lanes.workers`). While one of them waits for the disk or the network, further work
collects, so batches adapt to the load.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from queue import Empty
from time import monotonic
from uuid import UUID, uuid4

from outbox_api import Batch, ColumnIs, Dialect, OutboxTable, Sender

from outbox_core.config.settings import Delivery
from outbox_core.delivery.at_least_once import MarkPurgeReset
from outbox_core.delivery.commands import Answer, Publish, Request
from outbox_core.delivery.exactly_once import SelectPublishPurge
from outbox_core.delivery.retries import jittered
from outbox_core.delivery.sources import ages
from outbox_core.lanes.lane import LIFE_SECONDS, AtLeastOnceLane, ExactlyOnceLane
from outbox_core.lanes.plan import Plan
from outbox_core.lanes.recovery import enter_lane, open_lane, settled
from outbox_core.lanes.telemetry import Telemetry
from outbox_core.lanes.turn import (
    Executors,
    Lane,
    Reply,
    batch_executors,
    clusters_of,
    record_executors,
    take_turn,
)
from outbox_core.lanes.workers import Database, Replies, SenderThread, Worker
from outbox_core.leadership.protocol import LaneControl
from outbox_core.tracing.provider import LaneTracing
from outbox_core.transforms.senders import TransformingSender

log = logging.getLogger(__name__)


class LaneLoop:
    """Runs one lane for one epoch, from connecting until it ends or fails.

    Args:
        plan: The plan of the leadership.
        number: The lane's number, from 0.
        control: Until when leadership is confirmed, and whether to end.
        telemetry: The lane's metrics, events and log.
        clock: Returns seconds on a monotonic clock.
        new_leader_id: Returns a UUID that was never used before.
        chance: Returns a random number from 0 up to 1.
    """

    def __init__(
        self,
        plan: Plan,
        number: int,
        control: LaneControl,
        telemetry: Telemetry,
        *,
        clock: Callable[[], float] = monotonic,
        new_leader_id: Callable[[], UUID] = uuid4,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._telemetry = telemetry
        self._plan = plan
        self._number = number
        self._control = control
        self._clock = clock
        self._new_leader_id, self._chance = new_leader_id, chance
        self._dialect: Dialect = plan.dialect.create()
        self._replies = Replies()

    def run(self) -> None:
        """Harvests until ``control`` ends the lane, or it has reached its age limit.

        A drained lane leaves nothing in flight.

        Raises:
            LeadershipLost: The fence carries another leader's token.
            DriverError: The database or the broker cannot be used; a restart may succeed.
        """
        exactly_once = self._plan.delivery is Delivery.EXACTLY_ONCE
        with self._open_batches() if exactly_once else self._open_records() as (lane, executors):
            try:
                self._loop(lane, executors)
            finally:
                self._telemetry.settle()

    def _loop(self, lane: Lane, executors: Executors) -> None:
        replies: list[Reply] = []
        while (patience := take_turn(lane, self._control, self._clock, executors, replies)) is not None:
            replies = self._wait(patience)

    def _wait(self, patience: float) -> list[Reply]:
        """Waits for a reply, and returns all that have come."""
        replies: list[Reply] = []
        try:
            replies.append(self._replies.get(timeout=patience))
            while True:
                replies.append(self._replies.get_nowait())
        except Empty:
            return replies

    @contextmanager
    def _open_records(self) -> Iterator[tuple[Lane, Executors]]:
        plan, name = self._plan, self._number
        eligible = self._eligible()
        entered, chain, table = enter_lane(plan, name, eligible)
        machine = MarkPurgeReset(
            plan.limits, plan.failures, self._new_leader_id, self._chance, ages(eligible)
        )
        lane = AtLeastOnceLane(machine, name, self._telemetry, entered)
        with ExitStack() as stack:
            marker = stack.enter_context(closing(self._database(f"marker-{name}", lane, eligible, table)))
            purger = stack.enter_context(closing(self._database(f"purger-{name}", lane)))
            opened: Sender = plan.publisher.create().open(f"{plan.outbox}.{name}")
            if chain:
                opened = TransformingSender(opened, chain, plan.topics.refusal, self._leading)
            sender = self._tracing().sender(opened)
            broker = stack.enter_context(
                closing(SenderThread(f"sender-{name}", sender, self._replies, self._leading))
            )
            yield lane, record_executors(marker, purger, broker)

    @contextmanager
    def _open_batches(self) -> Iterator[tuple[Lane, Executors]]:
        plan, name, metrics = self._plan, self._number, self._telemetry.metrics
        eligible = self._eligible()
        opened, untraced, table = open_lane(plan, name, eligible)
        sender = self._tracing().transactional(untraced)
        metrics.recovered += opened.recovered
        metrics.purged += opened.recovered
        if opened.doubt:
            self._telemetry.add_event(settled(name, opened.doubt))

        def publish(request: Request) -> Answer:
            assert isinstance(request, Publish)  # noqa: S101 - nothing else is submitted
            return Answer(request, failures=sender.publish(request.records, request.checkpoint))

        machine = SelectPublishPurge(plan.limits, plan.failures, self._chance, opened.locked, ages(eligible))
        expires = self._clock() + LIFE_SECONDS
        lane = ExactlyOnceLane(machine, name, self._telemetry, opened, expires, torn=untraced.torn)
        with ExitStack() as stack:
            broker = Worker(f"publisher-{name}", publish, sender.close, self._replies)
            stack.enter_context(closing(broker))
            database = self._database(f"marker-{name}", lane, eligible, table, opened.purged)
            marker = stack.enter_context(closing(database))
            yield lane, batch_executors(marker, broker)

    def _eligible(self) -> Sequence[ColumnIs]:
        """Returns the sources of rows, and has the telemetry know them."""
        plan = self._plan
        affinity = plan.affinity.create()
        eligible = affinity.eligible(plan.taken_over)
        clusters = clusters_of(eligible, affinity.origin())
        self._telemetry.takeovers.configure(clusters, plan.taken_over)
        return eligible

    def _tracing(self) -> LaneTracing:
        plan = self._plan
        return LaneTracing(plan.outbox, self._number, plan.token, plan.publisher.driver)

    def _leading(self) -> bool:
        return self._clock() < self._control.lease_until

    def _about(self) -> Mapping[str, object]:
        """Returns what heartbeats say besides metrics; the first lane's speak for the leader, too."""
        return {**self._plan.about, **(self._control.about if self._number == 0 else {})}

    def _database(
        self,
        name: str,
        lane: Lane,
        eligible: Sequence[ColumnIs] = (),
        table: OutboxTable | None = None,
        purged: Sequence[Batch] = (),
    ) -> Worker:
        """Starts a thread with its own connection, or this one. ``eligible`` matters to marks only."""
        plan = self._plan
        database = Database(
            self._dialect,
            eligible,
            lambda: lane.fence,
            table,
            lanes=plan.lanes,
            token=plan.token,
            about=self._about,
            topics=plan.topics,
            purged=purged,
            keep_skipped=plan.failures.keep_skipped,
        )
        return Worker(name, database.execute, database.close, self._replies, rest=database.close)


RESTART_SECONDS = (0.5, 5.0)
"""The first and the longest pause before a lane restarts; it doubles between them."""
PROVEN_SECONDS = 60.0
"""A lane that ran this long, or purged anything, was not refused before its error."""


class Restarts:
    """The restarts of one lane.

    Args:
        stop_after: For how many seconds the database or the broker may refuse for good.
        chance: Returns a random number from 0 up to 1; spreads the restarts of many lanes.
        pauses: The first and the longest pause, in seconds, instead of ``RESTART_SECONDS``.
    """

    def __init__(
        self,
        stop_after: float,
        chance: Callable[[], float],
        pauses: tuple[float, float] | None = None,
    ) -> None:
        self._stop_after = stop_after
        self._chance = chance
        self._first, self._last = pauses or RESTART_SECONDS
        self._pause = self._first
        self._refused_since: float | None = None

    def failed(self, now: float, *, lasted: float, purged: int, retryable: bool) -> float | None:
        """Handles a failure of the lane.

        Args:
            now: The time.
            lasted: For how many seconds it had run.
            purged: How many records it had purged.
            retryable: Whether a restart may succeed without anybody's help.

        Returns:
            Seconds until the restart; ``None`` if the lane has been refused for too long.
        """
        if purged or lasted > PROVEN_SECONDS:
            self._pause, self._refused_since = self._first, None
        if retryable:
            self._refused_since = None
        elif self._refused_since is None:
            self._refused_since = now
        if self._refused_since is not None and now - self._refused_since >= self._stop_after:
            return None
        pause, self._pause = self._pause, min(self._pause * 2, self._last)
        return jittered(pause, self._chance)
