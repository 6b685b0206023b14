"""Executes the requests of :mod:`outbox_core.delivery.recovery`, with which lanes and leaderships begin."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from contextvars import copy_context
from typing import Any, NamedTuple, assert_never

from outbox_sdk import (
    Dialect,
    DriverError,
    OutboxTable,
    Publisher,
    TransactionalPublisher,
    TransactionalSender,
)

from outbox_core.config.settings import Choice, HarvestSettings
from outbox_core.delivery.recovery import Doubt, Entered, Opened, Recovery, take_over
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
    Result,
    RunAll,
    Steps,
    WriteCheckpoint,
    WriteNote,
)
from outbox_core.events import AttemptSettled
from outbox_core.lanes.plan import Plan
from outbox_core.steps import run_steps

log = logging.getLogger(__name__)

MAX_CONCURRENT = 8
"""Former lanes that are recovered concurrently."""


def enter_lane(plan: Plan, lane: int) -> Entered:
    """Enters a lane of at-least-once delivery; see :meth:`Recovery.enter`."""
    with closing(Driver(plan.dialect, plan.publisher)) as driver:
        return driver.run(_recovery(plan).enter(lane))


def open_lane(plan: Plan, lane: int) -> tuple[Opened, TransactionalSender]:
    """Takes over a lane of exactly-once delivery; see :meth:`Recovery.open`.

    Returns:
        The opened lane, and its open sender, which the caller closes.
    """
    with closing(Driver(plan.dialect, plan.publisher)) as driver:
        opened = driver.run(_recovery(plan).open(lane))
        _log(f"lane {lane}", opened.recovered, opened.doubt)
        return opened, driver.senders.pop(opened.sender)


class Begun(NamedTuple):
    """A leadership whose lanes may start.

    Attributes:
        token: The fence token.
        silence: Seconds since a lane of the former leader was last heard of; ``None`` if none ever was.
        taken_over: The clusters whose rows are taken over at once, as an operator said.
        settled: What became of transactions of former lanes.
    """

    token: int
    silence: float | None
    taken_over: tuple[int, ...] = ()
    settled: tuple[AttemptSettled, ...] = ()


def begin_leadership(settings: HarvestSettings) -> Begun:
    """Raises the fence and recovers former lanes, see :func:`take_over`; reads the deliberate takeovers.

    It reads them after it has raised the fence. So an operator who begins one, and raises the fence then,
    either is heeded here or ends this leadership.
    """
    origin = settings.affinity.create().origin()
    lanes = settings.limits.send_concurrency

    def recovery(token: int) -> Recovery:
        return Recovery(lanes, token, settings.delivery, settings.failures.undecided)

    with closing(Driver(settings.dialect, settings.publisher)) as driver:
        token, recovered = driver.run(take_over(lanes, settings.name, recovery))
        taken_over = driver.taken_over() if origin else ()
    for lane, (rows, doubt) in recovered.items():
        _log(f"former lane {lane}", rows, doubt)
    doubts = [(lane, doubt) for lane, (_, doubt) in recovered.items()]
    return Begun(
        token, driver.silence, taken_over, tuple(settled(lane, doubt) for lane, doubt in doubts if doubt)
    )


def settled(lane: int, doubt: Doubt) -> AttemptSettled:
    """Returns the event that tells of a doubt."""
    return AttemptSettled(lane, doubt.records, doubt.published, doubt.undecided, doubt.purged)


def _recovery(plan: Plan) -> Recovery:
    return Recovery(plan.lanes, plan.token, plan.delivery, plan.failures.undecided)


def _log(lane: str, rows: int, doubt: Doubt | None) -> None:
    """Says what a recovery found."""
    if rows:
        log.info("%s: %d rows were in the log already", lane, rows)
    if doubt is None:
        return
    what = "%s: a transaction with %d records had an unknown outcome: %d of them are in the log"
    if doubt.is_torn:
        log.warning(f"{what}, as the broker has torn it; others are published again", lane, *doubt[:2])  # noqa: G004 - two sentences
    else:
        log.info(f"{what}; others are published again", lane, *doubt[:2])  # noqa: G004 - likewise
    if doubt.undecided:
        log.warning(
            "%s: of %d of them the log does not tell whether they are published (%s): they are %s, by the "
            "setting failures.undecided",
            *(lane, doubt.undecided, doubt.reason),
            "purged" if doubt.purged > doubt.published else "published again",
        )


class Driver:
    """Executes requests over one connection to the database and the senders that it opens.

    It belongs to one thread, and connects with the first request that needs the database.

    Args:
        dialect: The database.
        publisher: The broker.

    Attributes:
        senders: Name → open sender. A caller that removes one closes it.
        silence: Seconds since the last heartbeat of any lane when the fence was raised.
    """

    def __init__(self, dialect: Choice[Dialect], publisher: Choice[Publisher]) -> None:
        self.senders: dict[str, TransactionalSender] = {}
        self.silence: float | None = None
        self._dialect = dialect
        self._publisher = publisher
        self._table: OutboxTable | None = None

    def run(self, steps: Steps[Result]) -> Result:
        """Runs a generator to its end, and returns its result.

        Raises:
            OutboxError: A request failed and the generator did not handle it; or the generator raised it.
        """
        return run_steps(steps, self._execute_any)

    def taken_over(self) -> tuple[int, ...]:
        """Returns the clusters of deliberate takeovers, ascending.

        Raises:
            DriverError: The database cannot be used.
        """
        return tuple(each.cluster for each in self._connected().takeovers())

    def close(self) -> None:
        """Closes all connections. Idempotent."""
        while self.senders:
            self.senders.popitem()[1].close()
        if self._table is not None:
            self._table.close()
            self._table = None

    def _execute_any(self, request: RecoveryRequest) -> Any:
        match request:
            case OpenSender(name):
                sender = self.senders[name] = self._open_transactional(name)
                return sender.location
            case CloseSender(name):
                self.senders.pop(name).close()
                return None
            case ReadCheckpoint(name) | FindPublished(name) | WriteCheckpoint(name):
                return _ask(self.senders[name], request)
            case RunAll(steps):
                with ThreadPoolExecutor(MAX_CONCURRENT, thread_name_prefix="recovery") as pool:
                    runs = [pool.submit(copy_context().run, self._run_apart, each) for each in steps]
                    return [run.result() for run in runs]
            case _:
                return self._execute(self._connected(), request)

    def _open_transactional(self, lane: str) -> TransactionalSender:
        publisher = self._publisher.create()
        if not isinstance(publisher, TransactionalPublisher):
            raise DriverError(
                f"publisher '{self._publisher.driver}' has no transactions: exactly-once delivery, and the "
                "first start after it, need one that has",
                retryable=False,
            )
        return publisher.open_transactional(lane)

    def _execute(
        self,
        table: OutboxTable,
        request: RaiseFence
        | Enter
        | ReadTableName
        | ReadNotes
        | ReadParked
        | ReadRows
        | PurgeBatches
        | WriteNote,
    ) -> Any:
        reply: Any = None
        match request:
            case RaiseFence(lanes, holder):
                ages = [lane.age for lane in table.lane_statuses() if lane.age is not None]
                self.silence = min(ages, default=None)
                reply = table.bump(lanes, holder)
            case Enter(lane, lanes, token):
                reply = table.enter(lane, lanes, token)
            case ReadTableName():
                reply = table.name
            case ReadNotes():
                reply = table.transactional_lanes()
            case ReadParked():
                reply = table.parked()
            case PurgeBatches(fence, batches):
                reply = table.advance(fence, batches, [], 0)
            case ReadRows(batch):
                reply = table.rows(batch)
            case WriteNote(fence, note):
                table.set_transactional(fence, note)
            case _:
                assert_never(request)
        return reply

    def _run_apart(self, steps: Steps[Any]) -> Any:
        with closing(Driver(self._dialect, self._publisher)) as driver:
            return driver.run(steps)

    def _connected(self) -> OutboxTable:
        if self._table is None:
            self._table = self._dialect.create().connect()
        return self._table


def _ask(sender: TransactionalSender, request: ReadCheckpoint | FindPublished | WriteCheckpoint) -> Any:
    match request:
        case ReadCheckpoint(_, location):
            return sender.attempt(location)
        case FindPublished(_, records, trace):
            return sender.find(records, trace)
        case WriteCheckpoint(_, checkpoint):
            return sender.publish([], checkpoint)
        case _:
            assert_never(request)
