"""One lane's I/O: carries out what the state machine decides, and tells it what came of it.

A lane is one thread with one connection to the database and one to the broker. A database call blocks the
lane; deliveries that arrive meanwhile collect in the sender and make the next purge the larger, which is how
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

log = logging.getLogger(__name__)


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
        self._fence: Fence | None = None
        self._next_beat = clock() + plan.limits.min_metrics_interval
        self._beaten = (clock(), 0)

    def run(self) -> None:
        """Harvests until the leash says to end; a drained lane leaves nothing in flight behind.

        Raises:
            LeadershipLost: The fence carries somebody else's token.
            DriverError: The database or the broker cannot be used; a new attempt may succeed.
        """
        table = self._connected()
        self._fence = table.enter(self.number, self._plan.lanes, self._plan.token)
        sender = self._plan.publisher.create().open(f"{self._plan.outbox}.{self.number}")
        try:
            self._loop(sender)
        finally:
            # What a hard stop leaves unreported has an unknown outcome: the next leader marks it again.
            sender.close(0.0)
            self._disconnect()

    def _loop(self, sender: Sender) -> None:
        machine = self._machine
        while not self._leash.stopped:
            now = self._clock()
            if self._leash.draining:
                machine.drain()
                if machine.settled:
                    return
            commands = machine.decide(now, leading=now < self._leash.lease_until)
            for command in commands:
                self._carry_out(command, sender)
            pause = 0.0 if commands else machine.wake_at() - self._clock()
            self._take(sender.poll(min(max(pause, 0.0), self._leash.attention_seconds)))
            if now >= self._next_beat:
                self._beat(now)

    def _carry_out(self, command: Command, sender: Sender) -> None:
        match command:
            case Send(records):
                sender.send(records)
                self.reading.sent += len(records)
            case Refresh(leader_id):
                self.reading.remarks += 1
                self.refreshed.append(leader_id)
            case Mark() | Purge() | Reset():
                try:
                    self._ask_database(command, self._connected())
                except DriverError as error:
                    if not error.retryable:
                        raise
                    log.warning("lane %d: %s failed, trying again: %s", self.number, _verb(command), error)
                    self._disconnect()
                    self._machine.outcome_unknown(self._clock())
            case _:
                assert_never(command)

    def _ask_database(self, command: Mark | Purge | Reset, table: OutboxTable) -> None:
        assert self._fence is not None  # noqa: S101 - the loop starts after the lane was entered
        machine, fence = self._machine, self._fence
        match command:
            case Mark(leader_id, limit):
                records = table.mark(fence, leader_id, limit)
                self.reading.marked += len(records)
                machine.marked(self._clock(), records)
            case Purge(leader_id, ids):
                table.purge(fence, leader_id, ids)
                self.reading.purged += len(ids)
                machine.purged(self._clock())
            case Reset(leader_id, ids):
                table.reset(fence, leader_id, ids)
                machine.reset_done(self._clock())
        self.reading.in_flight = machine.in_flight
        self.reading.waiting = machine.scoreboard.waiting

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

    def _beat(self, now: float) -> None:
        """Writes the lane's reading beside its fence; a database that fails now is found by the next mark."""
        since, purged = self._beaten
        holds = self._machine.scoreboard.holds.values()
        self.reading.held, self.reading.parked = len(holds), sum(hold.parked for hold in holds)
        numbers = as_numbers(self.reading, (self.reading.purged - purged) / (now - since))
        self._beaten = (now, self.reading.purged)
        self._next_beat = now + self._plan.limits.min_metrics_interval
        if self._table is not None and self._fence is not None:
            try:
                self._table.beat(self._fence, numbers)
            except DriverError as error:
                log.debug("lane %d: reading not written: %s", self.number, error)
                self._disconnect()

    def _connected(self) -> OutboxTable:
        if self._table is None:
            self._table = self._dialect.connect(self._eligible)
        return self._table

    def _disconnect(self) -> None:
        if self._table is not None:
            self._table.close()
            self._table = None


def _verb(command: Mark | Purge | Reset) -> str:
    return type(command).__name__.lower()
