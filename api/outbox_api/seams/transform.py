"""The transform seam: makes of a record, on its way out, none, one or several records of the same key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from outbox_api.base.record import Header


class Outgoing(NamedTuple):
    """A record on its way out. A transform makes others with ``_replace``.

    Attributes:
        id: The id of its row. What a transform makes of it is not looked at.
        part: Which of the records that were made of the row it is, counted from 0 before each transform.
        topic: The topic to publish to.
        key: The record's key, which no transform may change.
        value: Text, bytes, or ``None`` for a tombstone.
        headers: The headers in order.
        partition: The partition to publish to, or ``None`` to let the publisher's partitioner choose.
        timestamp_ms: The message's timestamp in milliseconds since the epoch; ``None`` for when it is sent.
    """

    id: int
    part: int
    topic: str
    key: str
    value: str | bytes | None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class Transform(Protocol):
    """Changes records between the outbox and the broker; several are a chain.

    It is a function of the record and of the transform's options alone, in every process and at every time:
    exactly-once delivery applies it again after a crash, to look for the result in the log, and so does every
    retry. So it does no I/O, has no state, and reads no clock.

    A changed option, or another version of its distribution, makes another transform of it; what an options
    class leaves out of its ``repr`` is not noticed. The ``repr`` is the same in every process, so options
    contain no sets.

    An option ``identity`` whose metadata is ``GIVEN`` has what :meth:`outbox_api.OutboxTable.identity`
    returns by the time a record is transformed, and is empty before.
    """

    def apply(self, record: Outgoing) -> Sequence[Outgoing]:
        """Returns what is published instead of a record, in this order; nothing to leave it out.

        Any error parks the record's key after the usual attempts. The reason names the transform, the type of
        the error, and the line.

        Raises:
            TransformError: Nothing can be made of the record. The message is part of the reason, so it
                contains nothing of the record's value.
        """
        ...
