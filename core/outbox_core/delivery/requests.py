"""What a recovery asks of the outside world, one request at a time; see :mod:`outbox_core.delivery.recovery`.

Whoever drives the generator carries a request out and sends the reply in, or throws in the error that the
database or the broker raised. Senders are known by their names here: the driver keeps the connections.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from outbox_sdk import Batch, Fence, TransactionalLane


@dataclass(frozen=True, slots=True)
class Enter:
    """Starts an attempt at a lane; see :meth:`outbox_sdk.OutboxTable.enter`. Reply: its ``Fence``."""

    lane: int
    lanes: int
    token: int


@dataclass(frozen=True, slots=True)
class ReadTableName:
    """Reads the table's name as the database knows it. Reply: a string."""


@dataclass(frozen=True, slots=True)
class ReadNotes:
    """Reads what the fence notes of all lanes. Reply: lane → ``TransactionalLane``."""


@dataclass(frozen=True, slots=True)
class ReadParked:
    """Counts the parked keys. Reply: ``Parked``."""


@dataclass(frozen=True, slots=True)
class PurgeBatches:
    """Deletes the rows of published batches, durably. Reply: how many rows it deleted, maybe not all.

    Checks the fence also where there are no batches.
    """

    fence: Fence
    batches: Sequence[Batch]


@dataclass(frozen=True, slots=True)
class WriteNote:
    """Has the fence note, durably, how the lane transacts; ``None`` ends its note. No reply."""

    fence: Fence
    note: TransactionalLane | None


@dataclass(frozen=True, slots=True)
class OpenSender:
    """Opens the transactional sender of this name, which fences its former one. Reply: its place."""

    name: str


@dataclass(frozen=True, slots=True)
class CloseSender:
    """Closes the sender of this name. No reply."""

    name: str


@dataclass(frozen=True, slots=True)
class ReadCheckpoint:
    """Reads the checkpoint of an open sender. Reply: its batches, or ``None`` where there is no checkpoint.

    Attributes:
        name: The sender's name.
        location: Where the checkpoint is; empty for the place of the sender itself.
    """

    name: str
    location: str


@dataclass(frozen=True, slots=True)
class EmptyCheckpoint:
    """Commits an empty checkpoint at the place of an open sender. No reply."""

    name: str


@dataclass(frozen=True, slots=True)
class RunAll:
    """Runs generators at the same time, over a connection each. Reply: what they returned, in their order.

    Fails as one of them fails, once all of them have ended.
    """

    steps: Sequence[Steps[Any]]


Request = (
    Enter
    | ReadTableName
    | ReadNotes
    | ReadParked
    | PurgeBatches
    | WriteNote
    | OpenSender
    | CloseSender
    | ReadCheckpoint
    | EmptyCheckpoint
    | RunAll
)

Result = TypeVar("Result")

Steps = Generator[Request, Any, Result]
"""Yields requests, is sent the replies, and returns a result."""
