"""One attempt at one lane: the real state machine, between a simulated database and a simulated broker.

Does what ``outbox_core.lane`` and ``outbox_core.table_thread`` do: marks, resets and parks go one after the
other over one connection, purges over another, and a remark waits for its new attempt at the fence.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from outbox_core.commands import Command, Mark, Park, Purge, Refresh, Reset, Send
from outbox_core.leash import BEAT_SECONDS
from outbox_sdk import Failure, MarkedRecord

from . import statements
from .audit import Violation
from .database import FAILED, LOST, Transaction
from .statements import Right

if TYPE_CHECKING:
    from .group import Group

Work = Mark | Purge | Reset | Park


class Lane:
    """One attempt, from entering the lane until its group is told to stop or something fails.

    Args:
        group: The group it runs in.
        number: The lane's number.
    """

    def __init__(self, group: Group, number: int) -> None:
        world, self.group, self.number = group.world, group, number
        self.world = world
        self.host = group.host
        self.ended = False
        self.fence: Right | None = None
        world.sessions += 1
        name = f"{group.host.name}/lane {number}/session {world.sessions}"
        self.producer = world.parts.producer(world.broker, group.host, number, name, self)
        self.machine = world.parts.machine(
            world.scenario.limits_of_a_lane(group.lanes),
            world.scenario.failures,
            self._mint,
            world.chance.random,
        )
        self.marker = Desk(self)
        self.purger = Desk(self)
        self._due = float("inf")
        self._delivered: list[MarkedRecord] = []
        self._undelivered: list[Failure] = []
        self._deferred: list[Command] = []
        self.enter()

    def enter(self) -> None:
        """Takes a new attempt at the fence; the lane waits for it."""
        group = self.group
        enter = statements.Enter(self.world.database, self.producer, self.number, group.lanes, group.token)
        self.fence = None
        self.world.wire.call(self.host, enter, self._entered)

    def _entered(self, result: Any) -> None:
        if self.ended:
            return
        if result is FAILED:
            self.end("an error on entering")
        elif result is LOST:
            self.lose()
        else:
            self.fence, self.machine.scoreboard.policy.parked = result
            self.world.tell(self, None, "entered with %s", self.fence)
            deferred, self._deferred = self._deferred, []
            if self._carry_out(deferred):
                self.step()

    def step(self) -> None:
        """One turn of the lane's loop."""
        if self.ended or self.fence is None:
            return
        leash, machine = self.group.leash, self.machine
        if leash.draining:
            machine.drain()
        if leash.stopped or (leash.draining and machine.settled):
            self.end("told to")
            return
        now = self.host.clock()
        self._take(now)
        while commands := machine.decide(now, leading=self.may_lead(now)):
            if not self._carry_out(commands):
                return
        self._check_bounds()
        self.wake(min(max(machine.wake_at() - now, 0.0005), BEAT_SECONDS))

    def may_lead(self, now: float) -> bool:
        return now < self.group.leash.lease_until

    def wake(self, delay: float) -> None:
        """Has the lane look after ``delay`` seconds, if it would not sooner."""
        due = self.world.scheduler.now + delay
        if due < self._due:
            self._due = due
            self.world.scheduler.at(due, self.host.do, self._woken, due)

    def _woken(self, due: float) -> None:
        if due == self._due:
            self._due = float("inf")
            self.step()
        else:  # somebody woke it before
            self.world.scheduler.steps -= 1

    def soon(self) -> None:
        """Has the lane look at what has arrived: mostly at once, sometimes when more has."""
        random = self.world.chance.random
        self.wake(random() * 0.004 if random() < 0.2 else 0.0)

    def _take(self, now: float) -> None:
        if self._delivered:
            delivered, self._delivered = self._delivered, []
            self.machine.delivered(now, delivered)
        if self._undelivered:
            undelivered, self._undelivered = self._undelivered, []
            self.machine.failed(undelivered)

    def _carry_out(self, commands: list[Command]) -> bool:
        """Carries out commands; returns whether that needs no wait for a new attempt at the fence."""
        for number, command in enumerate(commands):
            match command:
                case Send(records):
                    if self.world.trace is not None:
                        for record in records:
                            self.world.tell(self, record.key, "sends %d", record.id)
                    self.producer.send(records)
                case Mark() | Reset() | Park():
                    self.marker.submit(command)
                case Purge():
                    self.purger.submit(command)
                case Refresh(leader_id):
                    self.world.tell(self, None, "takes leader id %s", leader_id)
                    self.world.audit.counts["remarks"] += 1
                    self._deferred = commands[number + 1 :]
                    self.refresh()
                    if self.fence is None:
                        return False
        return True

    def refresh(self) -> None:
        self.enter()

    def heed(self, command: Work, result: Any) -> None:
        """Tells the machine what came of a command."""
        machine, now = self.machine, self.host.clock()
        match command:
            case Mark():
                if result is FAILED:
                    self.mark_failed(now)
                else:
                    machine.marked(now, result.records)
            case _ if result is FAILED:
                machine.settling_unknown(now)
            case Purge():
                machine.purged(now, result)
            case Reset():
                machine.reset_done(now)
            case Park():
                machine.park_done(now, result)
        self.soon()

    def mark_failed(self, now: float) -> None:
        self.machine.mark_unknown(now)

    def lose(self) -> None:
        """Takes that the fence is another's: the whole group stops."""
        self.group.lose(f"lane {self.number}")
        self.end("fenced")

    def end(self, why: str) -> None:
        """Ends the attempt; the group starts another unless it was told to stop."""
        if not self.ended:
            self.ended = True
            self.world.tell(self, None, "ends: %s", why)
            self.producer.close()
            self.group.ended(self.number)

    def _mint(self) -> UUID:
        leader_id = self.world.mint()
        self.world.audit.leader_id_taken(leader_id, self.number)
        return cast("UUID", leader_id)

    def _check_bounds(self) -> None:
        machine, limits = self.machine, self.world.scenario.limits_of_a_lane(self.group.lanes)
        known = machine.in_flight + machine.scoreboard.waiting
        if machine.in_flight > limits.max_in_flight_records:
            raise Violation("I10", f"{machine.in_flight} records are in flight", lane=self.number)
        if known > limits.max_in_flight_records + limits.send_buffer:
            raise Violation("I10", f"{known} records are known", lane=self.number)

    # --- what the producer tells --------------------------------------------------------------------

    def delivered(self, record: MarkedRecord) -> None:
        self.world.tell(self, record.key, "hears that %d was delivered", record.id)
        self._delivered.append(record)
        self.soon()

    def undelivered(self, failure: Failure) -> None:
        record = failure.record
        self.world.tell(self, record.key, "hears that %d was not delivered: %s", record.id, failure.reason)
        self._undelivered.append(failure)
        self.soon()


class Desk:
    """One connection to the outbox: carries out commands one by one, and connects anew after errors."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._work: deque[Work] = deque()
        self._command: Work | None = None
        self._connect()

    def _connect(self) -> None:
        self._settled = self._lane.world.parts.settled(self._lane.host.clock)
        self._releases = -1
        self._boot: int | None = None  # connects with the first command

    def submit(self, command: Work) -> None:
        self._work.append(command)
        if self._command is None:
            self._next()

    def _next(self) -> None:
        self._command = command = self._work.popleft()
        if self._boot is None:
            self._boot = self._lane.world.database.boot
        if isinstance(command, Mark) and self._settled.due():
            listing = statements.Listing(self._lane.world.database, self._settled.floor())
            self._lane.world.wire.call(self._lane.host, listing, self._listed, self._boot)
        else:
            self._execute(command)

    def _listed(self, result: Any) -> None:
        if result is FAILED:
            self._answered(FAILED)
        elif not self._lane.ended and self._command is not None:
            newest, holders = result
            self._settled.listed(newest, holders, prepared=False)
            self._execute(self._command)

    def _execute(self, command: Work) -> None:
        lane = self._lane
        assert lane.fence is not None
        lane.world.tell(lane, None, "asks for %s", command)
        lane.world.wire.call(lane.host, self._statement(command, lane.fence), self._answered, self._boot)

    def _statement(self, command: Work, fence: Right) -> Transaction:
        world, session = self._lane.world, self._lane.producer
        common = (world.database, session, fence, command.leader_id)
        parts = world.parts
        match command:
            case Mark(leader_id, limit):
                start = self._settled.begin((fence.lane, fence.lanes, leader_id))
                return parts.mark(common, limit, start, self._releases)
            case Purge(_, ids):
                return parts.purge(common, ids)
            case Park(_, poisons, ids):
                self._settled.released()
                return parts.park(common, [poison.id for poison in poisons], ids)
            case Reset(_, ids):
                self._settled.released()
                return parts.reset(common, ids)

    def _answered(self, result: Any) -> None:
        lane, command, self._command = self._lane, self._command, None
        if lane.ended or command is None:
            return
        if result is LOST:
            lane.lose()
            return
        if result is FAILED:
            self._connect()
        elif isinstance(command, Mark):
            self._take_note(result)
        if lane.world.trace is not None:
            lane.world.tell(lane, None, "is answered to %s: %s", type(command).__name__, _brief(result))
        if self._work:
            self._next()
        lane.heed(command, result)

    def _take_note(self, reply: statements.Marked) -> None:
        """Does what the dialect does with the reply to a mark."""
        if reply.releases is not None:
            self._releases = reply.releases
            self._settled.released()
        records = reply.records
        self._settled.marked(reply.found, (records[0].id, records[-1].id) if records else None)


def _brief(result: Any) -> str:
    if isinstance(result, statements.Marked):
        return ", ".join(f"{record.id} ({record.key})" for record in result.records) or "nothing"
    return str(result)
