"""One lane's I/O for exactly-once delivery: carries out what the state machine of batches decides.

The database and the broker are spoken to on a thread each, so the next batch is marked while one is
committed. Whatever is doubtful ends the lane. Its next attempt fences this one, at the database and at the
broker, and purges what is in the log already, before it marks anything
(:mod:`outbox_core.delivery.recovery`).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from contextlib import closing
from threading import Event
from time import monotonic
from typing import assert_never
from uuid import UUID, uuid4

from outbox_sdk import Failure

from outbox_core.delivery.commands import Advance, BatchCommand, Park, Publish, Tell
from outbox_core.delivery.exactly_once import TransactionalMarkPurge
from outbox_core.events import BatchMoved
from outbox_core.lanes.plan import Plan
from outbox_core.lanes.recovery import open_lane
from outbox_core.lanes.table_thread import Answer, TableThread
from outbox_core.lanes.telemetry import Diary
from outbox_core.lanes.worker import Worker
from outbox_core.leadership.protocol import BEAT_SECONDS, Leash

Publisher = Worker[Publish, Sequence[Failure]]
"""Publishes batches; answers with the failures for whose sake one was aborted, none once it is committed."""

log = logging.getLogger(__name__)

LIFE_SECONDS = 6 * 3600.0
"""After so long an idle lane starts anew, which writes its marker anew: brokers forget old ones."""


class TransactionalLane:
    """One attempt at one lane; see :class:`outbox_core.lanes.lane.Lane`, beside which it stands.

    Args:
        plan: The term's plan.
        number: The lane's number, from 0.
        leash: Says for how long leadership is vouched for, and when to end.
        clock: Seconds on a clock that never goes back.
        new_leader_id: Returns a UUID that was never used before.
    """

    def __init__(
        self,
        plan: Plan,
        number: int,
        leash: Leash,
        *,
        clock: Callable[[], float] = monotonic,
        new_leader_id: Callable[[], UUID] = uuid4,
    ) -> None:
        self.number = number
        self._diary = Diary(number, plan.limits.min_metrics_interval, clock())
        self.reading = self._diary.reading
        self.take_events = self._diary.take_events
        self._plan = plan
        self._leash = leash
        self._clock = clock
        self._machine = TransactionalMarkPurge(plan.limits, plan.failures, new_leader_id, random.random)
        self._dialect = plan.dialect.create()
        self._news = Event()
        self._expires = clock() + LIFE_SECONDS

    def run(self) -> None:
        """Harvests until the leash says to end, or the lane has grown old.

        A drained lane has purged all that it published, and notes at the fence that its marker tells nothing.

        Raises:
            LeadershipLost: The fence carries somebody else's token.
            DriverError: The database or the broker cannot be used, the outcome of what was asked of them is
                unknown (a new attempt finds out), or the broker has forgotten the marker (not retryable).
        """
        plan, number = self._plan, self.number
        opened, sender = open_lane(plan, number)
        self.reading.recovered += opened.recovered
        self.reading.purged += opened.recovered
        if opened.recovered:
            log.info("lane %d: %d rows were in the log already", number, opened.recovered)
        announce = self._news.set
        publisher: Publisher = Worker(
            f"publisher-{number}",
            lambda batch: sender.publish(batch.records, batch.marker),
            sender.close,
            announce,
        )
        try:
            eligible = plan.affinity.create().eligible()
            marker = TableThread(
                f"marker-{number}",
                self._dialect,
                eligible,
                opened.fence,
                opened.parked,
                announce=announce,
            )
            try:
                self._loop(marker, publisher)
            finally:
                marker.close()
        finally:
            publisher.close()
        if self._leash.draining and self._machine.settled:
            with closing(self._dialect.connect()) as table:
                table.transact(opened.fence, None)

    def _loop(self, marker: TableThread, publisher: Publisher) -> None:
        machine, leash, clock = self._machine, self._leash, self._clock
        while not leash.stopped:
            if leash.draining:
                machine.drain()
            now = clock()
            if machine.settled and (leash.draining or now > self._expires):
                return
            self._news.clear()
            for command in machine.decide(now, leading=now < leash.lease_until):
                self._carry_out(command, marker, publisher)
            heard = self._hear(marker, publisher)
            self._tell_moves()
            self._gauge(marker)
            if not heard:
                self._news.wait(min(max(machine.wake_at() - clock(), 0.0), BEAT_SECONDS))

    def _carry_out(self, command: BatchCommand, marker: TableThread, publisher: Publisher) -> None:
        match command:
            case Advance() | Park():
                marker.submit(command)
            case Publish(records):
                publisher.submit(command)
                self.reading.sent += len(records)
            case Tell(failures):
                self._diary.failed(failures)
            case _:
                assert_never(command)

    def _hear(self, marker: TableThread, publisher: Publisher) -> bool:
        """Tells the machine what came of its commands; returns whether there was anything to tell."""
        answer, failures = marker.answer(), publisher.answer()
        if failures is not None:
            if failures:
                self.reading.aborted += 1
                self._machine.aborted(self._clock(), failures)
            else:
                self._machine.published(self._clock())
        if answer is not None:
            self._heed(answer)
        return answer is not None or failures is not None

    def _heed(self, answer: Answer) -> None:
        if answer.error is not None:
            raise answer.error
        now = self._clock()
        match answer.command:
            case Advance():
                self.reading.marked += len(answer.records)
                self.reading.purged += answer.rows
                self._machine.advanced(now, answer.records, answer.rows)
            case Park(_, poisons):
                self._machine.parked(now, answer.rows)
                self._diary.parked(poisons, answer.rows)

    def _gauge(self, marker: TableThread) -> None:
        machine = self._machine
        self.reading.in_flight, self.reading.waiting = machine.in_flight, machine.waiting
        self._diary.gauge(self._clock(), marker, machine.policy, machine.troubled, self._batches)

    def _batches(self) -> dict[str, object]:
        """Returns the batches there are now, for operators."""
        batches = self._machine.batches()
        return {
            "batches": [
                {"name": str(name), "records": records, "stage": stage} for name, records, stage in batches
            ]
        }

    def _tell_moves(self) -> None:
        moves, self._machine.moves = self._machine.moves, []
        for leader_id, records, stage in moves:
            self._diary.tell(BatchMoved(leader_id, records, stage, self.number))
