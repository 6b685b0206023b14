"""The transform seam: makes of a record, on its way out, none, one or several records of the same key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from outbox_api.base.finding import Finding
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


@runtime_checkable
class StoringTransform(Transform, Protocol):
    """A transform that has to put something elsewhere before what it makes of a record is published."""

    def store(self, record: Outgoing) -> None:
        """Puts it there; called before each publication of what :meth:`apply` makes of the record.

        Not when that is only looked for in the log: so a lane begins again without what is away. It is
        repeated with a publication, by other processes too, so it is idempotent, and replaces nothing that
        other records need. It returns within seconds: other records of the lane wait for it.

        Raises:
            TransformUnavailable: What it needs is away. The record's key is tried again, after pauses, as
                when its partition is away; other keys go on. The message names what is away, and quotes
                neither the value nor a secret.
            TransformError: As of :meth:`apply`, and so does any other error.
        """
        ...

    def check(self) -> Sequence[Finding]:
        """Tries whether what it needs can be used from here; never raises."""
        ...
