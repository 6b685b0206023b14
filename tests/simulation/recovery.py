"""How exactly-once delivery begins, step by step as ``outbox_core.lanes.recovery`` does it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from outbox_core.config.settings import Delivery
from outbox_postgres.settled import FIRST
from outbox_sdk import Batch

from .database import FAILED, LOST, Transaction
from .fencing import Transacting
from .requests import TIMED_OUT
from .scheduler import Host
from .sender import TransactionalProducer
from .statements import Common, Marked, Right

if TYPE_CHECKING:
    from .process import Process
    from .world import World

REFUSED = "refused"
"""What comes of a lane whose marker is gone though it may have published."""
DONE = "done"

Outcome = Callable[[str], None]
"""Takes ``DONE``, ``FAILED``, ``LOST`` or ``REFUSED``."""


class Errand:
    """Statements one after the other over one connection, until one of them fails."""

    def __init__(self, world: World, host: Host, then: Outcome) -> None:
        self.world = world
        self.host = host
        self.then = then
        self._boot = world.database.boot

    def ask(self, statement: Transaction, then: Callable[[Any], None]) -> None:
        def answered(result: Any) -> None:
            if result is FAILED or result is LOST:
                self.then(result)
            else:
                then(result)

        self.world.wire.call(self.host, statement, answered, self._boot)


class Recovery(Errand):
    """Takes over one lane: the fence, the transactional id, the marker, and the purge of what it names.

    Args:
        world: The world.
        host: Where it is done.
        producer: The session on whose behalf.
        wanted: The lane, how many there are, and the leader's token.
        then: Is told what came of it.

    Attributes:
        fence: The right to work on the lane, once it is done.
        parked: How many keys were parked then.
    """

    def __init__(
        self,
        world: World,
        host: Host,
        producer: TransactionalProducer,
        wanted: tuple[int, int, int],
        then: Outcome,
    ) -> None:
        super().__init__(world, host, then)
        self.producer = producer
        self.lane = wanted[0]
        self.noted = False
        enter = world.parts.enter(world.database, producer, *wanted)
        self.ask(enter, self._entered)

    def _entered(self, result: tuple[Right, int]) -> None:
        self.fence, self.parked = result
        self.ask(Transacting(self.world.database), self._looked)

    def _looked(self, noted: dict[int, int]) -> None:
        self.noted = self.lane in noted
        self.open()

    def open(self) -> None:
        self.producer.open(self._opened)

    def _opened(self, fine: bool) -> None:
        if fine:
            self.read()
        else:
            self.then(FAILED)

    def read(self) -> None:
        self.producer.read_marker(self.take)

    def take(self, marker: Sequence[Batch] | str | None) -> None:
        """Purges what the marker says is in the log."""
        if isinstance(marker, str):
            assert marker is TIMED_OUT
            self.then(FAILED)
        elif marker is None and self.refuses():
            self.world.refused = True
            self.world.tell(None, None, "%s refuses to begin without a marker", self.producer.name)
            self.world.audit.counts["lanes refused"] += 1
            self.then(REFUSED)
        else:
            finished = self.heeded(marker or [])
            names = [batch.leader_id for batch in finished]
            self.world.tell(None, None, "%s finds in the log: batches %s", self.producer.name, names)
            self.producer.trail.told.update(names)
            self.purge(finished)

    def purge(self, finished: Sequence[Batch]) -> None:
        """Purges until nothing is found, and makes sure that the lane is this leader's."""

        def purged(reply: Marked) -> None:
            self.world.audit.counts["recovered"] += reply.purged
            if reply.purged:
                self.purge(finished)
            else:
                self.then(DONE)

        common, parts = self.common(self.world.mint()), self.world.parts
        self.ask(parts.advance(common, finished, 0, pending=(), start=FIRST, releases=-1), purged)

    def refuses(self) -> bool:
        """Whether a missing marker is a reason not to begin."""
        return self.noted

    def heeded(self, marker: Sequence[Batch]) -> Sequence[Batch]:
        """Returns the batches to purge."""
        return marker

    def common(self, leader_id: Any = None) -> Common:
        return self.world.database, self.producer, self.fence, leader_id


class Settlement(Errand):
    """What a leader does before it starts lanes: settles those whose successors would not find their batches.

    Args:
        process: The leader.
        token: Its token.
        then: Is told what came of it.
    """

    def __init__(self, process: Process, token: int, then: Outcome) -> None:
        super().__init__(process.world, process.host, then)
        self.lanes = process.lanes
        self.delivery = process.delivery
        self.token = token
        self._outcomes: list[str] = []
        self.ask(Transacting(self.world.database), self._looked)

    def former(self, noted: dict[int, int]) -> list[int]:
        """Returns the lanes to settle."""
        same = self.lanes if self.delivery is Delivery.EXACTLY_ONCE else 0
        return [lane for lane, lanes in noted.items() if lanes != same]

    def _looked(self, noted: dict[int, int]) -> None:
        former = self.former(noted)
        if former:
            self.world.tell(None, None, "%s settles lanes %s of %s", self.host.name, former, noted)
        else:
            self.then(DONE)
        for lane in former:
            _Settling(self, lane, lambda outcome: self._settled(outcome, len(former)))

    def _settled(self, outcome: str, lanes: int) -> None:
        self.world.audit.counts["lanes settled"] += outcome is DONE
        self._outcomes.append(outcome)
        if len(self._outcomes) == lanes:
            self.then(next((each for each in self._outcomes if each is not DONE), DONE))


class _Settling:
    """Settles one lane."""

    def __init__(self, settlement: Settlement, lane: int, then: Outcome) -> None:
        world = settlement.world
        self._then = then
        world.sessions += 1
        name = f"{settlement.host.name}/settles {lane}/session {world.sessions}"
        producer = world.parts.batch_producer(world.broker, settlement.host, lane, name)
        wanted = lane, settlement.lanes, settlement.token
        self._recovery = world.parts.recovery(world, settlement.host, producer, wanted, self._taken)

    def _taken(self, outcome: str) -> None:
        if outcome is not DONE:
            self._then(outcome)
            return
        recovery, parts = self._recovery, self._recovery.world.parts
        recovery.then = self._then
        recovery.ask(parts.transact(recovery.common(), begun=False), lambda _: self._then(DONE))
