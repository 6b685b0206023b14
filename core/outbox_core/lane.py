"""One lane's I/O: carries out what the state machine decides, and tells it what came of it.

Two threads, much as in the seed: the lane's own marks, sends, collects deliveries and resets, its purger
purges. Each has a connection of its own. While one waits for the database, what it will do next collects, so
batches adapt to load by themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import assert_never
from uuid import UUID, uuid4

from outbox_sdk import (
    Affinity,
    Deliveries,
    Dialect,
    DriverError,
    Failure,
    Fence,
    OutboxTable,
    Publisher,
    Sender,
)

from outbox_core.config.settings import Choice, Limits
from outbox_core.leash import Leash
from outbox_core.meter import Reading, as_numbers
from outbox_core.mpr import Command, Mark, MarkPurgeReset, Purge, Refresh, Reset, Send
from outbox_core.purger import Purger

log = logging.getLogger(__name__)

TOLD_MOST = 5
"""Failures told one by one; of many at once (say, the broker is away) the rest are only counted."""
PURGING_POLL_SECONDS = 0.001
"""The longest wait for deliveries while a purge is out, whose end nothing else announces."""


@dataclass(frozen=True)
class Plan:
    """What the lanes of one term of leadership need to know; travels to wherever they run.

    Attributes:
        outbox: The outbox's name; names lanes to the broker.
        token: The fence token of the term.
        lanes: How many lanes share the outbox.
        dialect: The database.
        affinity: Which rows may be marked.
        publisher: The broker.
        limits: Bounds and times of one lane.
    """

    outbox: str
    token: int
    lanes: int
    dialect: Choice[Dialect]
    affinity: Choice[Affinity]
    publisher: Choice[Publisher]
    limits: Limits


class Lane:
    """One attempt at one lane, from connecting until it is told to end or can go on no longer.

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
        self.reading = Reading()
        self.refreshed: list[UUID] = []
        """Leader ids taken since the list was last emptied."""
        self._plan = plan
        self._leash = leash
        self._clock = clock
        self._machine = MarkPurgeReset(plan.limits, new_leader_id)
        self._eligible = plan.affinity.create().eligible()
        self._dialect = plan.dialect.create()
        self._table: OutboxTable | None = None
        self._next_beat = clock() + plan.limits.min_metrics_interval
        self._beaten = (clock(), 0)

    def run(self) -> None:
        """Harvests until the leash says to end; a drained lane leaves nothing in flight behind.

        Raises:
            LeadershipLost: The fence carries somebody else's token.
            DriverError: The database or the broker cannot be used; a new attempt may succeed.
        """
        fence = self._connected().enter(self.number, self._plan.lanes, self._plan.token)
        sender = self._plan.publisher.create().open(f"{self._plan.outbox}.{self.number}")
        purger = Purger(self._dialect, fence)
        try:
            self._loop(fence, sender, purger)
        finally:
            # What a hard stop leaves unreported has an unknown outcome: the next leader marks it again.
            purger.close()
            sender.close(0.0)
            self._disconnect()

    def _loop(self, fence: Fence, sender: Sender, purger: Purger) -> None:
        machine = self._machine
        while not self._leash.stopped:
            now = self._clock()
            if self._leash.draining:
                machine.drain()
                if machine.settled:
                    return
            commands = machine.decide(now, leading=now < self._leash.lease_until)
            for command in commands:
                self._carry_out(command, fence, sender, purger)
            self._purged(purger)
            self._take(sender.poll(0.0 if commands else self._pause(purger)))
            self._gauge(purger)

    def _pause(self, purger: Purger) -> float:
        """Returns how long nothing will be to do, as far as is known, in seconds."""
        longest = PURGING_POLL_SECONDS if purger.busy else self._leash.attention_seconds
        return min(max(self._machine.wake_at() - self._clock(), 0.0), longest)

    def _carry_out(self, command: Command, fence: Fence, sender: Sender, purger: Purger) -> None:
        match command:
            case Send(records):
                sender.send(records)
                self.reading.sent += len(records)
            case Refresh(leader_id):
                self.reading.remarks += 1
                self.refreshed.append(leader_id)
            case Purge():
                purger.submit(command)
            case Mark():
                self._mark(command, fence)
            case Reset():
                self._reset(command, fence)
            case _:
                assert_never(command)

    def _mark(self, mark: Mark, fence: Fence) -> None:
        try:
            records = self._connected().mark(fence, mark.leader_id, mark.limit)
        except DriverError as error:
            self._disconnect_after(error, "mark")
            self._machine.mark_unknown(self._clock())
        else:
            self.reading.marked += len(records)
            self._machine.marked(self._clock(), records)

    def _reset(self, reset: Reset, fence: Fence) -> None:
        try:
            self._connected().reset(fence, reset.leader_id, reset.ids)
        except DriverError as error:
            self._disconnect_after(error, "reset")
            self._machine.settling_unknown(self._clock())
        else:
            self._machine.reset_done(self._clock())
            self.reading.failed += len(reset.failures)
            for failure in reset.failures[:TOLD_MOST]:
                log.warning("lane %d: %s", self.number, _tell(failure))
            if (untold := len(reset.failures) - TOLD_MOST) > 0:
                log.warning("lane %d: and %d more records were not delivered", self.number, untold)

    def _purged(self, purger: Purger) -> None:
        """Tells the machine what came of the purge that was out."""
        answer = purger.answer()
        if isinstance(answer, Purge):
            self.reading.purged += len(answer.ids)
            self._machine.purged(self._clock())
        elif answer is not None:
            log.warning("lane %d: purge failed, trying again: %s", self.number, answer)
            self._machine.settling_unknown(self._clock())

    def _take(self, deliveries: Deliveries) -> None:
        if deliveries.delivered:
            self._machine.delivered(self._clock(), deliveries.delivered)
        if deliveries.failed:
            self._machine.failed(deliveries.failed)

    def _gauge(self, purger: Purger) -> None:
        """Brings the reading up to date, and has it written beside the fence when that is due."""
        scoreboard, reading = self._machine.scoreboard, self.reading
        reading.in_flight, reading.waiting = self._machine.in_flight, scoreboard.waiting
        reading.held = len(scoreboard.holds)
        reading.parked = sum(hold.parked for hold in scoreboard.holds.values())
        now = self._clock()
        if now >= self._next_beat:
            since, purged = self._beaten
            purger.beat(as_numbers(reading, (reading.purged - purged) / (now - since)))
            self._beaten = (now, reading.purged)
            self._next_beat = now + self._plan.limits.min_metrics_interval

    def _connected(self) -> OutboxTable:
        if self._table is None:
            self._table = self._dialect.connect(self._eligible)
        return self._table

    def _disconnect_after(self, error: DriverError, doing: str) -> None:
        if not error.retryable:
            raise error
        log.warning("lane %d: %s failed, trying again: %s", self.number, doing, error)
        self._disconnect()

    def _disconnect(self) -> None:
        if self._table is not None:
            self._table.close()
            self._table = None


def _tell(failure: Failure) -> str:
    topic, key = failure.record.topic, failure.record.key
    consequence = "is tried again" if failure.retryable else "is parked"
    return (
        f"record {failure.record.id} of topic {topic!r} was not delivered and its key {key!r} {consequence}: "
        f"{failure.reason}"
    )
