"""What travels: the record an application stashes, and the record a lane marks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

Header = tuple[str, str | bytes | None]
"""One header: its name, and its value as text (sent as UTF-8), bytes, or ``None``."""


@dataclass(frozen=True, slots=True)
class Record:
    """A message that an application wants published, exactly as it shall appear on the topic.

    Attributes:
        topic: The topic to publish to; records of one outbox may name different topics.
        key: The record's key, possibly empty, never ``None``. Records of one key keep their order.
        value: Text (sent as UTF-8), bytes, or ``None`` for a tombstone.
        headers: The headers in order; a name may occur more than once.
    """

    topic: str
    key: str
    value: str | bytes | None = None
    headers: tuple[Header, ...] = ()


class MarkedRecord(NamedTuple):
    """A row of the outbox that a lane has marked and therefore may publish.

    A named tuple because hundreds of thousands are made each second.

    Attributes:
        id: The row's id; ids give the order of records within a key.
        topic: The topic to publish to.
        key: The record's key.
        value: Text, bytes, or ``None`` for a tombstone.
        headers: The headers in order; empty for none.
        partition: The partition to publish to, or ``None`` to let the publisher's partitioner choose.
        timestamp_ms: The message's timestamp in milliseconds since the epoch; ``None`` for when it is sent.
        fault: Why the row cannot be made into a message (say, header arrays of different length), or
            ``None`` for a sound row. A faulty row is never published; its key is held.
    """

    id: int
    topic: str
    key: str
    value: str | bytes | None
    headers: list[Header] | tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None
    fault: str | None = None


class Batch(NamedTuple):
    """The rows that one mark claimed; what exactly-once delivery marks, publishes and purges as one.

    The broker's transaction that publishes a batch carries the *checkpoint* with it: all batches that are in
    the log, or about to be, and whose rows may still be in the outbox. After a crash the checkpoint tells
    which rows to delete (they are in the log) and thereby which to mark again (they are not).

    Attributes:
        leader_id: The batch's name, used for no other: what its rows carry.
        first: Their lowest id.
        last: Their highest id; between the two lie rows of others too.
    """

    leader_id: UUID
    first: int
    last: int
