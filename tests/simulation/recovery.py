"""Database and broker as ``outbox_core.delivery.recovery`` reaches them in the simulated world."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from outbox_api import (
    Advanced,
    Attempt,
    Batch,
    DriverError,
    Failure,
    Fence,
    Found,
    MarkedRecord,
    OutboxError,
    Parked,
    Pause,
    TransactionalLane,
)
from outbox_core.delivery.checkpoint import decode
from outbox_postgres.settled import FIRST

from . import fencing
from .database import Transaction
from .greenlets import Fiber, Then, step
from .pauses import ReadPauses
from .requests import TIMED_OUT
from .scheduler import Host
from .sender import TransactionalProducer
from .statements import ReadRows
from .trail import Session

if TYPE_CHECKING:
    from .world import World


class Settings(NamedTuple):
    """How a process is configured.

    Attributes:
        table: What the database called the table when it started.
        location: Where its senders keep their checkpoints.
    """

    table: str
    location: str


class Servers:
    """Database and broker for one recovery: one connection, which is its table, and the senders it opens.

    Args:
        world: The world.
        host: Where it is done.
        settings: How the process is configured.
        session: On whose behalf; one that is made when a lane is entered for ``None``.

    Attributes:
        senders: Name → sender.
    """

    def __init__(self, world: World, host: Host, settings: Settings, session: Session | None = None) -> None:
        self.senders: dict[str, Sender] = {}
        self.world = world
        self.settings = settings
        self._host = host
        self._session = session
        self._boot = world.database.boot
        self._split = False  # what it waits for may have been refused already

    def run(self, recovery: Callable[[Servers], Any], then: Then) -> None:
        """Runs a recovery; ``then`` is called once it has ended."""
        Fiber(self._host, partial(self.recover, recovery), then)

    def recover(self, recovery: Callable[[Servers], Any]) -> Any:
        """Runs a recovery on the present thread, and takes note if it is refused."""
        try:
            return recovery(self)
        except DriverError as error:
            if not error.retryable and not self._split:
                self._refused(error)
            raise

    def _refused(self, error: DriverError) -> None:
        world = self.world
        world.refused = True
        world.tell(None, None, "%s refuses to begin: %s", self.session.name, error)
        world.audit.counts["lanes refused"] += 1

    def step(self, action: Callable[[Then], object]) -> Any:
        """Makes a step; see :func:`step`."""
        self.world.recovery_steps(self._host)
        return step(action)

    @property
    def session(self) -> Session:
        """On whose behalf it acts, once a lane is entered."""
        assert self._session is not None
        return self._session

    def for_each(self, lanes: Sequence[int], act: Callable[[Servers, int], Any]) -> list[Any]:
        results: dict[int, Any] = {}

        def ended(then: Then, lane: int, result: Any) -> None:
            results[lane] = result
            if len(results) == len(lanes):
                errors = (each for each in results.values() if isinstance(each, OutboxError))
                then(next(errors, None) or [results[lane] for lane in lanes])

        def start(then: Then) -> None:
            for lane in lanes:
                servers = Servers(self.world, self._host, self.settings)
                servers.run(partial(_swapped, act, lane), partial(ended, then, lane))

        self._split = True
        replies: list[Any] = self.step(start)
        return replies

    def unawaited(self, act: Callable[[], object], seconds: float = 0.0) -> None:
        """Does what only a mutant does: has something done after a while, and does not wait for it."""

        def start(then: Then) -> None:
            self._host.after(seconds, self.run, lambda _: act(), lambda _: None)
            then(None)

        self.step(start)

    # --- senders ------------------------------------------------------------------------------------

    def open_sender(self, name: str) -> Sender:
        self.step(
            lambda then: self.sender(name).producer.open(lambda fine: then(None if fine else TIMED_OUT))
        )
        return self.senders[name]

    def close_sender(self, name: str) -> None:
        self.step(lambda then: then(None))
        del self.senders[name]

    def sender(self, name: str) -> Sender:
        """Returns the sender of this name, whether or not it is open."""
        if name not in self.senders:
            self.senders[name] = Sender(self, self._host, name)
        return self.senders[name]

    # --- the table ----------------------------------------------------------------------------------

    @property
    def table(self) -> Any:
        """Itself, as it has the methods of a table that a recovery calls."""
        return self

    @property
    def name(self) -> str:
        return str(self.step(lambda then: then(self.settings.table)))

    def bump(self, lanes: int, _holder: str, expected: int | None = None) -> int:
        token: int = self._ask(lambda: self.world.parts.bump(self.world.database, lanes, expected))
        return token

    def enter(self, lane: int, lanes: int, token: int) -> Fence:
        def statement() -> Transaction:
            self._session = self._session or self._make_session(lane, token)
            self._session.lanes = lanes
            return self.world.parts.enter(self.world.database, self._session, lane, lanes, token)

        fence: Fence = self._ask(statement)
        return fence

    def transactional_lanes(self) -> Mapping[int, TransactionalLane]:
        notes: Mapping[int, TransactionalLane] = self._ask(lambda: fencing.ReadNotes(self.world.database))
        return notes

    def parked(self) -> Parked:
        parked: Parked = self._ask(lambda: fencing.ReadParked(self.world.database))
        return parked

    def pauses(self) -> list[Pause]:
        if not self.world.scenario.pauses:
            return []
        pauses: list[Pause] = self._ask(lambda: ReadPauses(self.world.database))
        return pauses

    def rows(self, batch: Batch) -> list[MarkedRecord]:
        rows: list[MarkedRecord] = self._ask(lambda: ReadRows(self.world.database, batch))
        return rows

    def advance(self, fence: Fence, finished: Sequence[Batch], *_: object) -> Advanced:
        common = (self.world.database, self.session, fence, None)
        reply: Any = self._ask(
            lambda: self.world.parts.advance(common, finished, 0, pending=(), start=FIRST, releases=-1)
        )
        self.world.audit.counts["recovered"] += reply.purged
        return Advanced(reply.purged, [], locked=reply.locked)

    def set_transactional(self, fence: Fence, noted: TransactionalLane | None) -> None:
        common = (self.world.database, self.session, fence, None)
        self._ask(lambda: self.world.parts.write_note(common, noted))

    def _ask(self, statement: Callable[[], Transaction]) -> Any:
        return self.step(lambda then: self.world.wire.call(self._host, statement(), then, self._boot))

    def _make_session(self, lane: int, token: int) -> Session:
        self.world.sessions += 1
        session = Session(lane, f"{self._host.name}/settles {lane}/session {self.world.sessions}")
        session.token = token
        return session


class Sender:
    """A producer as a recovery uses it; takes note, for the audit, of what it says is in the log."""

    def __init__(self, servers: Servers, host: Host, name: str) -> None:
        world, self._session = servers.world, servers.session
        self._world = world
        self._step = servers.step
        self.location = servers.settings.location
        self.producer: TransactionalProducer = world.parts.batch_producer(
            world.broker, host, self._session, name, self.location
        )

    def attempt(self, location: str = "") -> Attempt | None:
        attempt: Attempt | None = self._step(partial(self.producer.attempt, location or self.location))
        if attempt is not None:
            session, checkpoint = self._session, decode(attempt.checkpoint)
            self._world.tell(
                None, None, "%s finds in the log of %s: %s", session.name, self.producer.name, checkpoint
            )
            session.trail.told.update(number for batch in checkpoint.published for number in batch.ids())
        return attempt

    def find(self, records: Sequence[MarkedRecord], trace: str) -> Found:
        found: Found = self._step(lambda then: self.producer.find(records, trace, then))
        session, counts = self._session, self._world.audit.counts
        ids = [record.id for record in records]
        self._world.tell(
            None, None, "%s looks for %s of %s: %s", session.name, ids, self.producer.name, found
        )
        counts["rows found in the log"] += len(found.published)
        counts["rows not told of by the log"] += len(found.undecided)
        counts["rows looked for in the log"] += len(records)
        session.trail.told.update(found.published)
        session.trail.told.update(found.undecided if found.committed else ())
        return found

    def publish(self, records: Sequence[MarkedRecord], checkpoint: str) -> list[Failure]:
        failures: list[Failure] = self._step(partial(self.producer.publish, records, checkpoint))
        return failures

    def close(self) -> None:
        raise NotImplementedError


def _swapped(act: Callable[[Servers, int], Any], lane: int, servers: Servers) -> Any:
    return act(servers, lane)
