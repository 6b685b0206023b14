"""What the state machines of this package decide is to be done at the database and the broker."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from outbox_api import Batch, MarkedRecord, Poison


class Mark(NamedTuple):
    """Claim the earliest rows for ``leader_id`` (A3); see :meth:`outbox_api.OutboxTable.mark`."""

    leader_id: UUID
    limit: int
    max_bytes: int
    excluded_keys: tuple[str, ...] = ()
    source: int = 0
    excluded_topics: tuple[str, ...] = ()


class Purge(NamedTuple):
    """Delete these acknowledged rows where they still carry ``leader_id`` (B1)."""

    leader_id: UUID
    ids: list[int]


class Reset(NamedTuple):
    """Clear the leader id of these rows where they still carry ``leader_id`` (B2)."""

    leader_id: UUID
    ids: list[int]


class Park(NamedTuple):
    """Park the keys of these records, and clear the leader id of all their rows that still carry it.

    In exactly-once delivery, rows carry none: ``leader_id`` is ``None``, and there are no ``ids``.
    """

    leader_id: UUID | None
    poisons: list[Poison]
    ids: list[int]


class Advance(NamedTuple):
    """Delete batches that are published, and select the next; see :meth:`outbox_api.OutboxTable.advance`."""

    finished: list[Batch]
    pending: list[Batch]
    limit: int
    max_bytes: int
    source: int = 0
    excluded_keys: tuple[str, ...] = ()
    excluded_topics: tuple[str, ...] = ()


class Publish(NamedTuple):
    """Publish a batch in one transaction that carries the checkpoint."""

    records: list[MarkedRecord]
    checkpoint: str
