"""One attempt at one lane of exactly-once delivery: the real state machine, between what is simulated.

Does what ``outbox_core.lanes.transactional_lane`` does: one connection advances and parks while a producer
publishes, and whatever is doubtful ends the attempt, though not what is under way.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from outbox_core.delivery.commands import Advance, BatchCommand, Park, Publish
from outbox_core.delivery.exactly_once import TransactionalMarkPurge
from outbox_core.delivery.recovery import Opened
from outbox_sdk import LeadershipLost, OutboxError

from .attempt import Attempt
from .database import FAILED
from .desk import Desk, Work
from .recovery import Driver
from .sender import UNKNOWN, TransactionalProducer
from .trail import Session, Violation

if TYPE_CHECKING:
    from .group import Group

MOST_BATCHES = 4
"""Purged, published, being published, marked: one of each."""


class BatchLane(Attempt):
    """See :class:`tests.simulation.attempt.Attempt`."""

    machine: TransactionalMarkPurge
    producer: Session
    sender: TransactionalProducer

    def __init__(self, group: Group, number: int) -> None:
        super().__init__(group, number)
        world = self.world
        self.producer = Session(number, self.name)
        self.producer.token = group.token
        self.machine = world.parts.batch_machine(
            world.scenario.limits_of_a_lane(group.lanes),
            world.scenario.failures,
            self.mint,
            world.chance.random,
        )
        self.marker = Desk(self)
        self._expires = self.host.clock() + world.scenario.lane_seconds
        self._publishing: deque[Publish] = deque()
        self._outcomes: list[Any] = []
        self._answers: list[tuple[Work, Any]] = []
        self._driver = Driver(world, self.host, group.settings, self.producer)
        self._driver.run(group.recovery.open(number), self._opened)

    def _opened(self, result: Opened | OutboxError) -> None:
        if isinstance(result, LeadershipLost):
            if not self.ended:
                self.lose()
        elif isinstance(result, OutboxError):
            self.end(f"could not begin: {result}")
        elif not self.ended:
            self.fence, self.machine.policy.parked = result.fence, result.parked.keys
            self.sender = self._driver.senders[result.sender]
            self.world.tell(self, None, "begins with %s", self.fence)
            self.step()

    # --- the loop -----------------------------------------------------------------------------------

    def is_done(self, now: float) -> bool:
        return self.machine.settled and (self.group.leash.draining or now > self._expires)

    def leave(self) -> None:
        """A drained lane notes that its marker tells nothing any more."""
        if not self.group.leash.draining:
            self.end("it has grown old")
            return
        assert self.fence is not None
        ended = self.world.parts.write_note((self.world.database, self.producer, self.fence, None), None)
        self.fence = None
        self.world.wire.call(self.host, ended, lambda _: self.end("told to"))

    def carry_out(self, commands: list[BatchCommand]) -> bool:
        for command in commands:
            match command:
                case Advance() | Park():
                    self.marker.submit(command)
                case Publish():
                    self._publishing.append(command)
                    if len(self._publishing) == 1:
                        self._publish(command)
        return True

    def _publish(self, command: Publish) -> None:
        """Does what the thread that publishes does: one batch after the other."""
        world, name = self.world, command.marker[-1].leader_id
        if len(command.marker) >= MOST_BATCHES:
            raise Violation("I10", f"a marker of {len(command.marker)} batches", lane=self.number)
        if world.trace is not None:
            names = [batch.leader_id for batch in command.marker]
            for record in command.records:
                world.tell(self, record.key, "publishes %d, and the marker %s", record.id, names)
        self.sender.publish(command.records, command.marker, lambda outcome: self._published(name, outcome))

    def _published(self, name: object, outcome: Any) -> None:
        self.world.tell(self, None, "hears of batch %s: %s", name, outcome or "committed")
        if outcome == []:
            self.producer.trail.told.add(name)
        self._outcomes.append(outcome)
        self._publishing.popleft()
        if self._publishing:
            self._publish(self._publishing[0])
        self.soon()

    def heed(self, command: Work, result: Any) -> None:
        self._answers.append((command, result))
        self.soon()

    def take(self, now: float) -> None:
        """Tells the machine first what came of the publication, as the real lane does."""
        outcomes, self._outcomes = self._outcomes, []
        answers, self._answers = self._answers, []
        if UNKNOWN in outcomes:
            self.doubt(now)
            return
        for failures in outcomes:
            if failures:
                self.machine.aborted(now, failures)
            else:
                self.machine.published(now)
        for command, result in answers:
            if result is FAILED:
                self.end("an error of the database")
                return
            if isinstance(command, Advance):
                self.machine.advanced(now, result.records, result.purged)
            else:
                self.machine.parked(now, result)
        self.machine.moves.clear()  # nobody observes

    def doubt(self, now: float) -> None:
        """Takes that the outcome of a publication is not known."""
        self.end("an unknown outcome")

    # --- bounds -------------------------------------------------------------------------------------

    def check_bounds(self) -> None:
        machine, most = self.machine, self.world.scenario.limits.max_batch_records
        if max(machine.in_flight, machine.waiting) > most:
            text = f"{machine.in_flight} records are being published, {machine.waiting} are marked"
            raise Violation("I10", text, lane=self.number)
        if len(machine.batches()) > MOST_BATCHES:
            raise Violation("I10", f"{len(machine.batches())} batches", lane=self.number)

    def check_rest(self) -> None:
        if batches := self.machine.batches():
            raise Violation("I10", f"at rest there are batches: {batches}", lane=self.number)
