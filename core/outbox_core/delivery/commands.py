"""The requests of a lane to the database and the broker, and the answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from outbox_api import Advanced, Batch, Changed, Failure, Fence, MarkedRecord, Parked, Poison

_NOTHING = Advanced(0, [])
_UNCHANGED = Changed(0)


@dataclass(frozen=True, slots=True)
class Mark:
    """Claim the earliest rows for ``leader_id`` (A3); see :meth:`outbox_api.OutboxTable.mark`."""

    leader_id: UUID
    limit: int
    max_bytes: int
    excluded_keys: tuple[str, ...] = ()
    source: int = 0
    excluded_topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Send:
    """Publish these records, in this order, without waiting (A8)."""

    records: list[MarkedRecord]


@dataclass(frozen=True, slots=True)
class Purge:
    """Delete these acknowledged rows where they still carry ``leader_id`` (B1)."""

    leader_id: UUID
    ids: list[int]


@dataclass(frozen=True, slots=True)
class Reset:
    """Clear the leader id of these rows where they still carry ``leader_id`` (B2)."""

    leader_id: UUID
    ids: list[int]


@dataclass(frozen=True, slots=True)
class Park:
    """Park the keys of these records, and clear the leader id of all their rows that still carry it.

    In exactly-once delivery, rows carry none: ``leader_id`` is ``None``, and there are no ``ids``.
    """

    leader_id: UUID | None
    poisons: list[Poison]
    ids: list[int]


@dataclass(frozen=True, slots=True)
class Advance:
    """Delete batches that are published, and select the next; see :meth:`outbox_api.OutboxTable.advance`."""

    finished: list[Batch]
    pending: list[Batch]
    limit: int
    max_bytes: int
    source: int = 0
    excluded_keys: tuple[str, ...] = ()
    excluded_topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish a batch in one transaction that carries the checkpoint."""

    records: list[MarkedRecord]
    checkpoint: str


@dataclass(frozen=True, slots=True)
class Refresh:
    """Raise the epoch in the fence; later marks carry another leader id (A9).

    With the new epoch the fence rejects a delayed statement of the old leader id.
    """

    leader_id: UUID


@dataclass(frozen=True, slots=True)
class ReportFailures:
    """Report records that were not delivered and whose keys are held, and topics that are held as a whole."""

    failures: list[Failure]
    held_topics: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Write a lane's metrics beside its fence for operators, and count what is parked."""

    metrics: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class EndTransactions:
    """Persist in the fence that the lane does not use transactions any more."""


Command = Mark | Send | Purge | Reset | Park | Refresh | ReportFailures
"""The commands of :mod:`outbox_core.delivery.at_least_once`."""
BatchCommand = Advance | Publish | Park | ReportFailures
"""The commands of :mod:`outbox_core.delivery.exactly_once`."""
Request = Mark | Purge | Reset | Park | Advance | Refresh | Heartbeat | EndTransactions | Send | Publish
"""A request of a lane to the database or the broker."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request.

    Attributes:
        request: The request.
        records: What a mark returned.
        advanced: What an advance returned.
        changed: What a purge, reset or park returned.
        failures: The records because of which a batch was aborted; empty if it was committed.
        fence: The lane's right to mark and purge, after a refresh.
        parked: The number and age of parked keys, after a refresh or a heartbeat.
        error: The error that was raised instead. The outcome of the request is unknown then.
        seconds: How long the request took.
    """

    request: Request
    records: Sequence[MarkedRecord] = ()
    advanced: Advanced = _NOTHING
    changed: Changed = _UNCHANGED
    failures: Sequence[Failure] = ()
    fence: Fence | None = None
    parked: Parked | None = None
    error: Exception | None = None
    seconds: float = field(default=0.0, compare=False)
