"""The requests of a recovery, one at a time; see :mod:`outbox_core.delivery.recovery`.

The driver of the generator executes a request and sends the reply in, or throws the error that the database
or the broker raised. Requests refer to senders by name; the driver keeps the connections.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from outbox_sdk import Batch, Fence, MarkedRecord, TransactionalLane


@dataclass(frozen=True, slots=True)
class RaiseFence:
    """Raises the fence token of all lanes; see :meth:`outbox_sdk.OutboxTable.bump`. Reply: the token."""

    lanes: int
    holder: str


@dataclass(frozen=True, slots=True)
class Enter:
    """Enters a lane; see :meth:`outbox_sdk.OutboxTable.enter`. Reply: its ``Fence``."""

    lane: int
    lanes: int
    token: int


@dataclass(frozen=True, slots=True)
class ReadTableName:
    """Reads the table's name as the database knows it. Reply: a string."""


@dataclass(frozen=True, slots=True)
class ReadNotes:
    """Reads which lanes the fence lists as transactional. Reply: lane → ``TransactionalLane``."""


@dataclass(frozen=True, slots=True)
class ReadParked:
    """Counts the parked keys. Reply: ``Parked``."""


@dataclass(frozen=True, slots=True)
class ReadRows:
    """Reads the rows of a batch that are in the outbox; see :meth:`outbox_sdk.OutboxTable.rows`."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class PurgeBatches:
    """Deletes the rows of published batches, durably. Reply: ``Advanced``, without records.

    Checks the fence also where there are no batches.
    """

    fence: Fence
    batches: Sequence[Batch]


@dataclass(frozen=True, slots=True)
class WriteNote:
    """Persists in the fence how the lane uses transactions; ``None`` means that it does not. No reply."""

    fence: Fence
    note: TransactionalLane | None


@dataclass(frozen=True, slots=True)
class OpenSender:
    """Opens the transactional sender of this name, which fences its former one. Reply: its location."""

    name: str


@dataclass(frozen=True, slots=True)
class CloseSender:
    """Closes the sender of this name. No reply."""

    name: str


@dataclass(frozen=True, slots=True)
class ReadCheckpoint:
    """Reads the last attempt of an open sender. Reply: an ``Attempt``, or ``None`` where there is none.

    Attributes:
        name: The sender's name.
        location: Where the checkpoint is; empty for the location of the sender itself.
    """

    name: str
    location: str


@dataclass(frozen=True, slots=True)
class FindPublished:
    """Looks for the records of an attempt in the log. Reply: ``Found``.

    Attributes:
        name: The name of the open sender whose attempt it was.
        records: The records, in the order in which they were published.
        trace: The attempt's.
    """

    name: str
    records: Sequence[MarkedRecord]
    trace: str


@dataclass(frozen=True, slots=True)
class WriteCheckpoint:
    """Commits a checkpoint, without records, at the location of an open sender. No reply."""

    name: str
    checkpoint: str


@dataclass(frozen=True, slots=True)
class RunAll:
    """Runs generators concurrently, each with its own connections. Reply: their results, in the same order.

    If one fails, it waits for the others to end, and fails with the same error.
    """

    steps: Sequence[Steps[Any]]


RecoveryRequest = (
    RaiseFence
    | Enter
    | ReadTableName
    | ReadNotes
    | ReadParked
    | ReadRows
    | PurgeBatches
    | WriteNote
    | OpenSender
    | CloseSender
    | ReadCheckpoint
    | FindPublished
    | WriteCheckpoint
    | RunAll
)

Result = TypeVar("Result")

Steps = Generator[RecoveryRequest, Any, Result]
"""A generator that yields requests, receives the replies, and returns a result."""
