"""Carries out the requests of ``outbox_core.delivery.recovery`` in the simulated world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from outbox_core.delivery.checkpoint import decode
from outbox_core.delivery.requests import (
    CloseSender,
    Enter,
    FindPublished,
    OpenSender,
    PurgeBatches,
    RaiseFence,
    ReadCheckpoint,
    ReadNotes,
    ReadParked,
    ReadRows,
    ReadTableName,
    RecoveryRequest,
    RunAll,
    Steps,
    WriteCheckpoint,
    WriteNote,
)
from outbox_postgres.settled import FIRST
from outbox_sdk import Advanced, Attempt, DriverError, Found, LeadershipLost, OutboxError

from . import fencing
from .database import FAILED, LOST, Transaction
from .requests import TIMED_OUT
from .scheduler import Host
from .sender import UNKNOWN, TransactionalProducer
from .statements import ReadRows as ReadRowsStatement
from .trail import Session

if TYPE_CHECKING:
    from .world import World

Then = Callable[[Any], None]
"""Takes what a generator returned, or the :class:`OutboxError` that ended it."""


class Settings(NamedTuple):
    """How a process is configured.

    Attributes:
        table: What the database called the table when it started.
        location: Where its senders keep their checkpoints.
    """

    table: str
    location: str


@dataclass(frozen=True)
class Unawaited:
    """What only a mutant asks: that a request is carried out after a while, and nobody waits for it."""

    request: RecoveryRequest
    seconds: float = 0.0


class Driver:
    """Drives one generator, over one connection and the senders that it opens.

    Args:
        world: The world.
        host: Where it is done.
        settings: How the process is configured.
        session: On whose behalf; one that is made when a lane is entered for ``None``.

    Attributes:
        senders: Name → sender.
    """

    def __init__(self, world: World, host: Host, settings: Settings, session: Session | None = None) -> None:
        self.senders: dict[str, TransactionalProducer] = {}
        self._world = world
        self._host = host
        self._settings = settings
        self._session = session
        self._boot = world.database.boot

    def run(self, steps: Steps[Any], then: Then) -> None:
        """Runs a generator; ``then`` is called once it has ended."""
        self._steps, self._then = steps, then
        self._reply(None)

    def _reply(self, reply: Any) -> None:
        """Goes on with a reply, or with the error that production's driver would raise."""
        steps = self._steps
        try:
            if isinstance(reply, OutboxError):
                request = steps.throw(reply)
            elif reply in (FAILED, TIMED_OUT, UNKNOWN):
                request = steps.throw(DriverError(str(reply), retryable=True))
            elif reply is LOST:
                request = steps.throw(LeadershipLost(reply))
            else:
                request = steps.send(reply)
        except StopIteration as end:
            self._then(end.value)
        except OutboxError as error:
            if error is not reply and isinstance(error, DriverError) and not error.retryable:
                self._refused(error)
            self._then(error)
        else:
            self._world.recovery_steps(self._host)
            self._host.do(self._execute, request, self._reply)

    def _refused(self, error: DriverError) -> None:
        world = self._world
        world.refused = True
        world.tell(None, None, "%s refuses to begin: %s", self._entered.name, error)
        world.audit.counts["lanes refused"] += 1

    def _execute(self, request: RecoveryRequest | Unawaited, then: Then) -> None:
        match request:
            case OpenSender(name):
                self._sender(name).open(lambda fine: then(self._settings.location if fine else TIMED_OUT))
            case CloseSender(name):
                del self.senders[name]
                then(None)
            case ReadCheckpoint(name, location):
                self._sender(name).attempt(
                    location or self._settings.location, lambda attempt: self._read(name, attempt, then)
                )
            case FindPublished(name, records, trace):
                self._sender(name).find(records, trace, lambda found: self._found(request, found, then))
            case WriteCheckpoint(name, checkpoint):
                self._sender(name).publish([], checkpoint, lambda outcome: then(outcome or None))
            case RunAll(steps):
                self._run_all(steps, then)
            case Unawaited(unawaited, seconds):
                self._host.after(seconds, self._execute, unawaited, lambda _: None)
                then(None)
            case ReadTableName():
                then(self._settings.table)
            case PurgeBatches():
                self._ask(self._statement(request), lambda reply: self._purged(reply, then))
            case _:
                self._ask(self._statement(request), then)

    def _statement(
        self, request: RaiseFence | Enter | ReadNotes | ReadParked | ReadRows | PurgeBatches | WriteNote
    ) -> Transaction:
        database, parts = self._world.database, self._world.parts
        match request:
            case RaiseFence(lanes):
                return parts.bump(database, lanes)
            case ReadNotes() | ReadParked():
                kind = fencing.ReadNotes if isinstance(request, ReadNotes) else fencing.ReadParked
                return kind(database)
            case Enter(lane, lanes, token):
                self._session = self._session or self._make_session(lane, token)
                self._session.lanes = lanes
                return parts.enter(database, self._session, lane, lanes, token)
            case ReadRows(batch):
                return ReadRowsStatement(database, batch)
            case PurgeBatches(fence, batches):
                common = (database, self._entered, fence, None)
                return parts.advance(common, batches, 0, pending=(), start=FIRST, releases=-1)
            case WriteNote(fence, note):
                return parts.write_note((database, self._entered, fence, None), note)

    def _ask(self, statement: Transaction, then: Then) -> None:
        self._world.wire.call(self._host, statement, then, self._boot)

    def _make_session(self, lane: int, token: int) -> Session:
        self._world.sessions += 1
        session = Session(lane, f"{self._host.name}/settles {lane}/session {self._world.sessions}")
        session.token = token
        return session

    @property
    def _entered(self) -> Session:
        assert self._session is not None
        return self._session

    def _sender(self, name: str) -> TransactionalProducer:
        if name not in self.senders:
            world = self._world
            self.senders[name] = world.parts.batch_producer(
                world.broker, self._host, self._entered, name, self._settings.location
            )
        return self.senders[name]

    def _read(self, name: str, attempt: Attempt | str | None, then: Then) -> None:
        """Takes note, for the audit, of the batches that a lane was told are in the log."""
        if isinstance(attempt, Attempt):
            session, checkpoint = self._entered, decode(attempt.checkpoint)
            self._world.tell(None, None, "%s finds in the log of %s: %s", session.name, name, checkpoint)
            session.trail.told.update(number for batch in checkpoint.published for number in batch.ids())
        then(attempt)

    def _found(self, request: FindPublished, found: Found | str, then: Then) -> None:
        """Does the same with what was found of an attempt."""
        if isinstance(found, Found):
            session, counts = self._entered, self._world.audit.counts
            self._world.tell(None, None, "%s looks for %s: %s", session.name, request, found)
            counts["rows found in the log"] += len(found.published)
            counts["rows not told of by the log"] += len(found.undecided)
            counts["rows looked for in the log"] += len(request.records)
            session.trail.told.update(found.published)
            session.trail.told.update(found.undecided if found.committed else ())
        then(found)

    def _purged(self, reply: Any, then: Then) -> None:
        if isinstance(reply, str):
            then(reply)
        else:
            self._world.audit.counts["recovered"] += reply.purged
            then(Advanced(reply.purged, [], locked=reply.locked))

    def _run_all(self, steps: Sequence[Steps[Any]], then: Then) -> None:
        results: dict[int, Any] = {}

        def ended(number: int, result: Any) -> None:
            results[number] = result
            if len(results) == len(steps):
                errors = (each for each in results.values() if isinstance(each, OutboxError))
                then(next(errors, None) or [results[number] for number in range(len(steps))])

        for number, each in enumerate(steps):
            Driver(self._world, self._host, self._settings).run(each, partial(ended, number))
