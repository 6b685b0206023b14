"""Database and broker as ``outbox_core.delivery.recovery`` reaches them in the simulated world.

A recovery is plain code, and waits for each answer. Here it runs on a greenlet, a stack of its own. Whatever
it asks for switches to the scheduler, which switches back with the reply, or never: then the host has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from greenlet import getcurrent, greenlet
from outbox_api import (
    Advanced,
    Attempt,
    Batch,
    DriverError,
    Failure,
    Fence,
    Found,
    LeadershipLost,
    MarkedRecord,
    OutboxError,
    Parked,
    TransactionalLane,
)
from outbox_core.delivery.checkpoint import decode
from outbox_postgres.settled import FIRST

from . import fencing
from .database import FAILED, LOST, Transaction
from .requests import TIMED_OUT
from .scheduler import Host
from .sender import UNKNOWN, TransactionalProducer
from .statements import ReadRows
from .trail import Session

if TYPE_CHECKING:
    from .world import World

Then = Callable[[Any], None]
"""Takes a reply; at the end what a recovery returned, or the :class:`OutboxError` that ended it."""


class Settings(NamedTuple):
    """How a process is configured.

    Attributes:
        table: What the database called the table when it started.
        location: Where its senders keep their checkpoints.
    """

    table: str
    location: str


def step(action: Callable[[Then], object]) -> Any:
    """Makes a step of a recovery: has the scheduler call ``action``, and returns the reply that this takes.

    Raises:
        OutboxError: The reply is this one, or stands for it.
    """
    return getcurrent().parent.switch(action)


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

    def run(self, recovery: Callable[[Servers], Any], then: Then) -> None:
        """Runs a recovery; ``then`` is called once it has ended."""
        self._go_on(greenlet(recovery), then, self)

    def _go_on(self, thread: Any, then: Then, reply: Any) -> None:
        """Goes on with a reply, or with the error that a server of production would raise."""
        try:
            if isinstance(reply, OutboxError):
                action = thread.throw(reply)
            elif reply in (FAILED, TIMED_OUT, UNKNOWN):
                action = thread.throw(DriverError(str(reply), retryable=True))
            elif reply is LOST:
                action = thread.throw(LeadershipLost(reply))
            else:
                action = thread.switch(reply)
        except OutboxError as error:
            if error is not reply and isinstance(error, DriverError) and not error.retryable:
                self._refused(error)
            then(error)
            return
        if thread.dead:
            then(action)
        else:
            self.world.recovery_steps(self._host)
            self._host.do(action, partial(self._go_on, thread, then))

    def _refused(self, error: DriverError) -> None:
        world = self.world
        world.refused = True
        world.tell(None, None, "%s refuses to begin: %s", self.session.name, error)
        world.audit.counts["lanes refused"] += 1

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

        replies: list[Any] = step(start)
        return replies

    def unawaited(self, act: Callable[[], object], seconds: float = 0.0) -> None:
        """Does what only a mutant does: has something done after a while, and does not wait for it."""

        def start(then: Then) -> None:
            self._host.after(seconds, self.run, lambda _: act(), lambda _: None)
            then(None)

        step(start)

    # --- senders ------------------------------------------------------------------------------------

    def open_sender(self, name: str) -> Sender:
        step(lambda then: self.sender(name).producer.open(lambda fine: then(None if fine else TIMED_OUT)))
        return self.senders[name]

    def close_sender(self, name: str) -> None:
        step(lambda then: then(None))
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
        return str(step(lambda then: then(self.settings.table)))

    def bump(self, lanes: int, _holder: str) -> int:
        token: int = self._ask(lambda: self.world.parts.bump(self.world.database, lanes))
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
        return step(lambda then: self.world.wire.call(self._host, statement(), then, self._boot))

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
        self.location = servers.settings.location
        self.producer: TransactionalProducer = world.parts.batch_producer(
            world.broker, host, self._session, name, self.location
        )

    def attempt(self, location: str = "") -> Attempt | None:
        attempt: Attempt | None = step(partial(self.producer.attempt, location or self.location))
        if attempt is not None:
            session, checkpoint = self._session, decode(attempt.checkpoint)
            self._world.tell(
                None, None, "%s finds in the log of %s: %s", session.name, self.producer.name, checkpoint
            )
            session.trail.told.update(number for batch in checkpoint.published for number in batch.ids())
        return attempt

    def find(self, records: Sequence[MarkedRecord], trace: str) -> Found:
        found: Found = step(lambda then: self.producer.find(records, trace, then))
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
        failures: list[Failure] = step(partial(self.producer.publish, records, checkpoint))
        return failures

    def close(self) -> None:
        raise NotImplementedError


def _swapped(act: Callable[[Servers, int], Any], lane: int, servers: Servers) -> Any:
    return act(servers, lane)
