"""One lane's I/O: carries out what the state machine decides, and tells it what came of it.

The lane's own thread only decides, sends and collects deliveries. The database is spoken to on two threads
beside it, so while one thing waits for the disk or the network the others go on, and what has to be done next
collects: batches adapt to load by themselves.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from time import monotonic
from typing import assert_never
from uuid import UUID, uuid4

from outbox_sdk import Deliveries, Sender

from outbox_core.delivery.at_least_once import MarkPurgeReset
from outbox_core.delivery.commands import Command, Mark, Park, Purge, Refresh, Reset, Send, Tell
from outbox_core.events import LeaderRefreshed
from outbox_core.lanes.plan import Plan
from outbox_core.lanes.recovery import enter_lane
from outbox_core.lanes.table_thread import Answer, TableThread
from outbox_core.lanes.telemetry import Diary
from outbox_core.leadership.protocol import BEAT_SECONDS, Leash

log = logging.getLogger(__name__)

ANSWER_SECONDS = 0.001
"""The longest wait for deliveries while the database is at work, whose answer nothing announces."""


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
        self._diary = Diary(number, plan.limits.min_metrics_interval, clock())
        self.reading = self._diary.reading
        self.take_events = self._diary.take_events
        """Leader ids taken since the list was last emptied."""
        self._plan = plan
        self._leash = leash
        self._clock = clock
        self._machine = MarkPurgeReset(plan.limits, plan.failures, new_leader_id, random.random)
        self._dialect = plan.dialect.create()

    def run(self) -> None:
        """Harvests until the leash says to end; a drained lane leaves nothing in flight behind.

        Raises:
            LeadershipLost: The fence carries somebody else's token.
            DriverError: The database or the broker cannot be used; a new attempt may succeed.
        """
        plan, number = self._plan, self.number
        eligible = plan.affinity.create().eligible()
        fence, parked = enter_lane(plan, number)
        marker = TableThread(f"marker-{number}", self._dialect, eligible, fence, parked)
        purger = TableThread(f"purger-{number}", self._dialect, (), fence, parked)
        try:
            sender = plan.publisher.create().open(f"{plan.outbox}.{number}")
            try:
                self._loop(marker, purger, sender)
            finally:
                # What a hard stop leaves unreported has an unknown outcome: the next leader marks it again.
                sender.close(0.0)
        finally:
            marker.close()
            purger.close()

    def _loop(self, marker: TableThread, purger: TableThread, sender: Sender) -> None:
        machine, leash, clock = self._machine, self._leash, self._clock
        while not leash.stopped:
            if leash.draining:
                machine.drain()
                if machine.settled:
                    return
            now = clock()
            commands = machine.decide(now, leading=now < leash.lease_until)
            for command in commands:
                self._carry_out(command, marker, purger, sender)
            answers = [answer for side in (marker, purger) if (answer := side.answer())]
            for answer in answers:
                self._heed(answer)
            pause = 0.0 if commands or answers else max(machine.wake_at() - clock(), 0.0)
            longest = ANSWER_SECONDS if marker.busy or purger.busy else BEAT_SECONDS
            self._take(sender.poll(min(pause, longest)))
            self._gauge(purger)

    def _carry_out(self, command: Command, marker: TableThread, purger: TableThread, sender: Sender) -> None:
        match command:
            case Send(records):
                sender.send(records)
                self.reading.sent += len(records)
            case Mark() | Reset() | Park():
                marker.submit(command)
            case Purge():
                purger.submit(command)
            case Refresh(leader_id):
                fence, purger.parked = enter_lane(self._plan, self.number)
                marker.fence = purger.fence = fence
                self.reading.remarks += 1
                self._diary.tell(LeaderRefreshed(leader_id, self.number))
            case Tell(failures):
                self._diary.failed(failures)
            case _:
                assert_never(command)

    def _heed(self, answer: Answer) -> None:
        """Tells the machine what came of a command to the database."""
        machine, now, command = self._machine, self._clock(), answer.command
        if answer.error is not None:
            verb = type(command).__name__.lower()
            log.warning("lane %d: %s failed, trying again: %s", self.number, verb, answer.error)
        match command:
            case Mark() if answer.error:
                machine.mark_unknown(now)
            case Purge() | Reset() | Park() if answer.error:
                machine.settling_unknown(now)
            case Mark():
                self.reading.marked += len(answer.records)
                machine.marked(now, answer.records)
            case Purge(_, ids):
                self.reading.purged += len(ids)
                machine.purged(now, answer.rows)
            case Reset():
                machine.reset_done(now)
            case Park(_, poisons):
                machine.park_done(now, answer.rows)
                self._diary.parked(poisons, answer.rows)

    def _take(self, deliveries: Deliveries) -> None:
        if deliveries.delivered:
            self._machine.delivered(self._clock(), deliveries.delivered)
        if deliveries.failed:
            self._machine.failed(deliveries.failed)

    def _gauge(self, purger: TableThread) -> None:
        """Brings the reading up to date, and has it written beside the fence when that is due."""
        scoreboard, reading = self._machine.scoreboard, self.reading
        reading.in_flight, reading.waiting = self._machine.in_flight, scoreboard.waiting
        self._diary.gauge(self._clock(), purger, scoreboard.policy, scoreboard.troubled)
