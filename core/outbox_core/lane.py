"""One lane's I/O: carries out what the state machine decides, and tells it what came of it.

Two threads, as in the seed: the lane's own marks, sends and collects deliveries, its settler purges and
resets. Each has a connection of its own. While one waits for the database, what it will do next collects, so
batches adapt to load by themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import assert_never
from uuid import UUID, uuid4

from outbox_sdk import Affinity, Deliveries, Dialect, DriverError, Fence, OutboxTable, Publisher, Sender

from outbox_core.config.settings import Choice, Limits
from outbox_core.leash import Leash
from outbox_core.meter import Reading, as_numbers
from outbox_core.mpr import Command, Mark, MarkPurgeReset, Purge, Refresh, Reset, Send
from outbox_core.settler import Settler

log = logging.getLogger(__name__)

SETTLING_POLL_SECONDS = 0.001
"""The longest wait for deliveries while a purge or reset is out, whose end nothing else announces."""


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
        settler = Settler(self._dialect, fence)
        try:
            self._loop(fence, sender, settler)
        finally:
            # What a hard stop leaves unreported has an unknown outcome: the next leader marks it again.
            settler.close()
            sender.close(0.0)
            self._disconnect()

    def _loop(self, fence: Fence, sender: Sender, settler: Settler) -> None:
        machine = self._machine
        while not self._leash.stopped:
            now = self._clock()
            if self._leash.draining:
                machine.drain()
                if machine.settled:
                    return
            commands = machine.decide(now, leading=now < self._leash.lease_until)
            for command in commands:
                self._carry_out(command, fence, sender, settler)
            self._settled(settler)
            self._take(sender.poll(0.0 if commands else self._pause(settler)))
            self._gauge(settler)

    def _pause(self, settler: Settler) -> float:
        """Returns how long nothing will be to do, as far as is known, in seconds."""
        longest = SETTLING_POLL_SECONDS if settler.busy else self._leash.attention_seconds
        return min(max(self._machine.wake_at() - self._clock(), 0.0), longest)

    def _carry_out(self, command: Command, fence: Fence, sender: Sender, settler: Settler) -> None:
        match command:
            case Send(records):
                sender.send(records)
                self.reading.sent += len(records)
            case Refresh(leader_id):
                self.reading.remarks += 1
                self.refreshed.append(leader_id)
            case Purge() | Reset():
                settler.submit(command)
            case Mark():
                self._mark(command, fence)
            case _:
                assert_never(command)

    def _mark(self, mark: Mark, fence: Fence) -> None:
        try:
            records = self._connected().mark(fence, mark.leader_id, mark.limit)
        except DriverError as error:
            if not error.retryable:
                raise
            log.warning("lane %d: mark failed, trying again: %s", self.number, error)
            self._disconnect()
            self._machine.mark_unknown(self._clock())
        else:
            self.reading.marked += len(records)
            self._machine.marked(self._clock(), records)

    def _settled(self, settler: Settler) -> None:
        """Tells the machine what came of the purge or reset that was out."""
        match settler.answer():
            case Purge(_, ids):
                self.reading.purged += len(ids)
                self._machine.purged(self._clock())
            case Reset():
                self._machine.reset_done(self._clock())
            case DriverError() as error:
                log.warning("lane %d: purge or reset failed, trying again: %s", self.number, error)
                self._machine.settling_unknown(self._clock())

    def _take(self, deliveries: Deliveries) -> None:
        if deliveries.delivered:
            self._machine.delivered(self._clock(), deliveries.delivered)
        if deliveries.failed:
            for failure in deliveries.failed:
                log.warning(
                    "lane %d: record %d was not delivered: %s", self.number, failure.record.id, failure.reason
                )
            self.reading.failed += len(deliveries.failed)
            self._machine.failed(deliveries.failed)

    def _gauge(self, settler: Settler) -> None:
        """Brings the reading up to date, and has it written beside the fence when that is due."""
        scoreboard, reading = self._machine.scoreboard, self.reading
        reading.in_flight, reading.waiting = self._machine.in_flight, scoreboard.waiting
        reading.held = len(scoreboard.holds)
        reading.parked = sum(hold.parked for hold in scoreboard.holds.values())
        now = self._clock()
        if now >= self._next_beat:
            since, purged = self._beaten
            settler.beat(as_numbers(reading, (reading.purged - purged) / (now - since)))
            self._beaten = (now, reading.purged)
            self._next_beat = now + self._plan.limits.min_metrics_interval

    def _connected(self) -> OutboxTable:
        if self._table is None:
            self._table = self._dialect.connect(self._eligible)
        return self._table

    def _disconnect(self) -> None:
        if self._table is not None:
            self._table.close()
            self._table = None
