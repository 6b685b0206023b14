"""The events of a harvest; docs/events.md says when they happen, and what a handler may do."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock, get_ident
from uuid import UUID

from outbox_core.events.metrics import Stats
from outbox_core.events.stages import BatchStage

log = logging.getLogger("outbox.events")


@dataclass(frozen=True, slots=True)
class LeaderAcquired:
    """This process leads now, and its lanes start.

    Attributes:
        leader_id: Identifies this leadership; never used before or after.
        token: The fence token of every statement of this leadership.
        elector: The driver of the elector that has elected this process.
        silence: Seconds since the former leader's lanes were last heard of, by the database's clock; ``None``
            if nobody has led before. After a hand-over that is what it has cost; a leader that crashed may
            have worked for up to one interval of metrics longer than it was heard.
    """

    leader_id: UUID
    token: int
    elector: str = ""
    silence: float | None = None


@dataclass(frozen=True, slots=True)
class LeaderRefreshed:
    """A lane marks under a new leader id; informational.

    Attributes:
        leader_id: The new leader id, never used before.
        lane: The lane's number.
    """

    leader_id: UUID
    lane: int


@dataclass(frozen=True, slots=True)
class BatchMoved:
    """A batch of exactly-once delivery has reached another stage; informational.

    Attributes:
        first: The lowest id of its records.
        last: The highest id; between the two lie ids of others too.
        records: The number of its records.
        stage: The stage it has reached. An abandoned batch was not published; its records are selected again.
        lane: The lane's number.
    """

    first: int
    last: int
    records: int
    stage: BatchStage
    lane: int


@dataclass(frozen=True, slots=True)
class TakeoverBegan:
    """A lane takes records that another cluster wrote: that one may be lost.

    It comes with the first record of a cluster, and again with the first after a minute without any.

    Attributes:
        cluster: The number of the other cluster.
        lane: The lane's number.
        deliberate: Whether an operator said so (``outbox takeover``).
    """

    cluster: int
    lane: int
    deliberate: bool


@dataclass(frozen=True, slots=True)
class AttemptSettled:
    """A lane of exactly-once delivery has found out what became of a transaction of unknown outcome.

    Attributes:
        lane: The lane's number.
        records: How many of the transaction's records were in the outbox.
        published: How many of these are in the log. If it is neither none nor all of those that are decided,
            the broker has torn the transaction.
        undecided: Of how many the log does not tell.
        purged: How many are purged: those in the log, and undecided ones as ``failures.undecided`` says. The
            others are published again.
    """

    lane: int
    records: int
    published: int
    undecided: int
    purged: int


@dataclass(frozen=True, slots=True)
class LeaderRevoked:
    """Leadership is handed over; the lanes have drained. A handler may block to finish work of its own.

    Attributes:
        error: With what the harvest ends; empty if it goes on, or was stopped.
    """

    error: str = ""


@dataclass(frozen=True, slots=True)
class LeaderFenced:
    """Leadership is lost and somebody else may lead already. A handler must not block.

    Attributes:
        reason: Why, in a few words.
        error: As of :class:`LeaderRevoked`.
    """

    reason: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class MeterRead:
    """Statistics of all lanes since the last event of this kind.

    Attributes:
        stats: Rates and totals.
    """

    stats: Stats


LaneEvent = LeaderRefreshed | BatchMoved | TakeoverBegan | AttemptSettled
"""The events of lanes, which the leader passes on."""
Event = LeaderAcquired | LaneEvent | LeaderRevoked | LeaderFenced | MeterRead
EventHandler = Callable[[Event], None]


class Emitter:
    """Hands events to a handler, one at a time, whichever threads they come from.

    Attributes:
        handler: What is called; ``None`` for nothing.
    """

    def __init__(self) -> None:
        self.handler: EventHandler | None = None
        self._emitting = Lock()
        self._thread = 0  # which is in the handler

    @property
    def is_in_handler(self) -> bool:
        """Whether the handler has called, on this thread."""
        return self._thread == get_ident()

    def emit(self, event: Event) -> None:
        """Calls the handler; what it raises passes through."""
        log.debug("%s", event)
        if self.handler is None:
            return
        with self._emitting:
            self._thread = get_ident()
            try:
                self.handler(event)
            finally:
                self._thread = 0
