"""Connects :mod:`outbox_core.delivery.recovery`, with which lanes and leaderships begin, to the servers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from contextvars import copy_context
from functools import cached_property
from typing import NamedTuple

from outbox_api import (
    ColumnIs,
    Dialect,
    DriverError,
    OutboxTable,
    PermittedTopics,
    Publisher,
    TransactionalPublisher,
    TransactionalSender,
    Transform,
)

from outbox_core.delivery.recovery import Doubt, Entered, Opened, Recovery, Result, take_over
from outbox_core.events import AttemptSettled
from outbox_core.events.metrics import COPIED
from outbox_core.lanes.plan import Plan
from outbox_core.settings import Choice, HarvestSettings
from outbox_core.transforms.chain import Chain
from outbox_core.transforms.senders import TransformingTransactionalSender
from outbox_core.transforms.torn import TornRows

log = logging.getLogger("outbox.lanes")

MAX_CONCURRENT = 8
"""Former lanes that are recovered concurrently."""


def enter_lane(
    plan: Plan, lane: int, eligible: Sequence[ColumnIs] = ()
) -> tuple[Entered, Chain, OutboxTable]:
    """Enters a lane of at-least-once delivery; see :meth:`Recovery.enter`.

    Returns:
        The lane that may begin, its transforms, and the outbox, which the caller closes.
    """
    with _left_open(plan, eligible) as servers:
        return _recovery(plan).enter(servers, lane), servers.chain, servers.table


def open_lane(
    plan: Plan, lane: int, eligible: Sequence[ColumnIs] = ()
) -> tuple[Opened, TransformingTransactionalSender, OutboxTable]:
    """Takes over a lane of exactly-once delivery; see :meth:`Recovery.open`.

    Returns:
        The opened lane, its open sender, and the outbox, which the caller closes both.
    """
    with _left_open(plan, eligible) as servers:
        opened = _recovery(plan).open(servers, lane)
        _log(f"lane {lane}", opened.recovered, opened.doubt)
        return opened, servers.senders.pop(opened.sender), servers.table


class Begun(NamedTuple):
    """A leadership whose lanes may start."""

    token: int
    silence: float | None
    """Seconds since a lane of the former leader was last heard of; ``None`` if none ever was."""
    taken_over: tuple[int, ...] = ()  # the clusters whose rows are taken over at once, as an operator said
    settled: tuple[AttemptSettled, ...] = ()  # what became of transactions of former lanes
    identity: str = ""  # the outbox's, if dead letters have a topic
    copied_until: str = ""  # up to when the former leader had copied dead letters; empty if it did not say


def begin_leadership(settings: HarvestSettings) -> Begun:
    """Raises the fence and recovers former lanes, see :func:`take_over`; reads the deliberate takeovers.

    It reads them after it has raised the fence. So an operator who begins one, and raises the fence then,
    either is heeded here or ends this leadership.
    """
    origin = settings.affinity.create().origin()
    lanes = settings.limits.send_concurrency

    def recovery(token: int) -> Recovery:
        return Recovery(lanes, token, settings.delivery, settings.failures.undecided)

    choices = (settings.dialect, settings.publisher, settings.transforms)
    with closing(ConnectedServers(*choices, PermittedTopics(settings.topics))) as servers:
        former = servers.table.lane_statuses()
        ages = [lane.age for lane in former if lane.age is not None]
        copied = (str(lane.metrics[COPIED]) for lane in former if COPIED in lane.metrics)
        identity = servers.table.identity() if settings.failures.topic else ""
        token, recovered = take_over(servers, lanes, settings.name, recovery)
        taken_over = tuple(each.cluster for each in servers.table.takeovers()) if origin else ()
    for lane, (rows, doubt) in recovered.items():
        _log(f"former lane {lane}", rows, doubt)
    doubts = [(lane, doubt) for lane, (_, doubt) in recovered.items()]
    events = tuple(settled(lane, doubt) for lane, doubt in doubts if doubt)
    return Begun(token, min(ages, default=None), taken_over, events, identity, next(copied, ""))


def settled(lane: int, doubt: Doubt) -> AttemptSettled:
    """Returns the event that tells of a doubt."""
    return AttemptSettled(lane, doubt.records, doubt.published, doubt.undecided, doubt.purged)


@contextmanager
def _left_open(plan: Plan, eligible: Sequence[ColumnIs]) -> Iterator[ConnectedServers]:
    """Connects; closes everything only at an error, as the lane goes on with it."""
    servers = ConnectedServers(plan.dialect, plan.publisher, plan.transforms, plan.topics, eligible)
    try:
        yield servers
    except BaseException:
        servers.close()
        raise


def _recovery(plan: Plan) -> Recovery:
    return Recovery(plan.lanes, plan.token, plan.delivery, plan.failures.undecided)


def _log(lane: str, rows: int, doubt: Doubt | None) -> None:
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


class ConnectedServers:
    """Connects to the database at once, and to the broker for each sender; belongs to one thread."""

    def __init__(
        self,
        dialect: Choice[Dialect],
        publisher: Choice[Publisher],
        transforms: Sequence[Choice[Transform]],
        topics: PermittedTopics,
        eligible: Sequence[ColumnIs] = (),
    ) -> None:
        self._dialect = dialect
        self._publisher = publisher
        self._transforms = transforms
        self._topics = topics
        self._torn = TornRows()
        self.senders: dict[str, TransformingTransactionalSender] = {}
        """Name → open sender. A caller that removes one closes it."""
        self.table: OutboxTable = dialect.create().connect(eligible)

    def open_sender(self, name: str) -> TransactionalSender:
        """See :meth:`outbox_core.delivery.recovery.Servers.open_sender`."""
        publisher = self._publisher.create()
        if not isinstance(publisher, TransactionalPublisher):
            raise DriverError(
                f"publisher '{self._publisher.driver}' has no transactions: exactly-once delivery, and the "
                "first start after it, need one that has",
                retryable=False,
            )
        chain, refusal = self.chain, self._topics.refusal  # first: it may ask the database
        opened = publisher.open_transactional(name)
        sender = self.senders[name] = TransformingTransactionalSender(opened, chain, refusal, self._torn)
        return sender

    @cached_property
    def chain(self) -> Chain:
        """The transforms."""
        return Chain.of(self._transforms, self.table.identity)

    def close_sender(self, name: str) -> None:
        """See :meth:`outbox_core.delivery.recovery.Servers.close_sender`."""
        self.senders.pop(name).close()

    def for_each(self, lanes: Sequence[int], act: Callable[[ConnectedServers, int], Result]) -> list[Result]:
        """See :meth:`outbox_core.delivery.recovery.Servers.for_each`."""

        def apart(lane: int) -> Result:
            choices = (self._dialect, self._publisher, self._transforms)
            with closing(ConnectedServers(*choices, self._topics)) as servers:
                return act(servers, lane)

        with ThreadPoolExecutor(MAX_CONCURRENT, thread_name_prefix="recovery") as pool:
            runs = [pool.submit(copy_context().run, apart, lane) for lane in lanes]
            return [run.result() for run in runs]

    def close(self) -> None:
        """Closes all connections."""
        while self.senders:
            self.senders.popitem()[1].close()
        self.table.close()
