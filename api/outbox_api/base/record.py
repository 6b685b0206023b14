"""What travels: the record an application stashes, the record a lane publishes, and batches of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, NamedTuple, Self

from outbox_api.base.errors import RecordError
from outbox_api.base.payloads import Serializer, quotes, reason, to_json

ID_HEADER = "outbox-id"
"""The header of a message that has its record's id: the outbox's identity, a colon, and the row's id."""

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

    @classmethod
    def of(
        cls,
        topic: str,
        key: str,
        model: Any,
        headers: Iterable[Header] = (),
        *,
        serializer: Serializer = to_json,
    ) -> Self:
        """Makes a record of a model: an object of pydantic, msgspec or a dataclass, or what JSON has.

        Args:
            topic: As in the record.
            key: As in the record.
            model: What its value is made of; ``None`` for a tombstone.
            headers: As in the record.
            serializer: Makes the value; JSON by default.

        Raises:
            RecordError: The serializer cannot make a value of the model; its sentence says why.
        """
        try:
            value = None if model is None else serializer(model, topic)
        except Exception as error:
            why = f"{type(model).__qualname__} cannot be made into a value: {' '.join(reason(error).split())}"
            refused = RecordError(f"{why} (topic {topic!r:.60}, key {key!r:.60})")
            if quotes(error):
                raise refused from None  # a traceback shows causes
            raise refused from error
        return cls(topic, key, value, tuple(headers))


class MarkedRecord(NamedTuple):
    """A row of the outbox that a lane has marked, or in exactly-once delivery selected, to publish it.

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
        created: The row's ``create_time`` in seconds since the epoch, or ``None``. A dialect reads it of all
            rows while marks return few, or if it is asked to, and may read it of a sample of many; it
            serves to measure how long records wait, and as a column of Spark's source.
    """

    id: int
    topic: str
    key: str
    value: str | bytes | None
    headers: list[Header] | tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None
    fault: str | None = None
    created: float | None = None


class Batch(NamedTuple):
    """The rows that exactly-once delivery publishes in one transaction, and then deletes.

    The broker's transaction that publishes a batch carries the *checkpoint* with it: all batches that are in
    the log, or about to be, and whose rows may still be in the outbox. After a crash the checkpoint tells
    which rows to delete (they are in the log) and thereby which to publish (all others).

    Attributes:
        runs: The rows' ids, as runs of consecutive ids: the first and the last of each. They ascend.
        newest: The greatest ``create_time`` of the rows, as their dialect writes it. A row with the id of a
            deleted one, as after ``TRUNCATE … RESTART IDENTITY``, is younger, and not of the batch. Empty if
            the dialect does not tell.
    """

    runs: tuple[tuple[int, int], ...]
    newest: str = ""

    @classmethod
    def of(cls, ids: Sequence[int], newest: str = "") -> Self:
        """Makes a batch of ids that ascend."""
        if not ids:
            return cls((), newest)
        if ids[-1] - ids[0] == len(ids) - 1:
            return cls(((ids[0], ids[-1]),), newest)
        ends = [at for at, (one, next_) in enumerate(pairwise(ids), 1) if next_ != one + 1]
        firsts, lasts = [0, *ends], [*ends, len(ids)]
        return cls(tuple((ids[a], ids[b - 1]) for a, b in zip(firsts, lasts, strict=True)), newest)

    def ids(self) -> list[int]:
        """Returns the rows' ids, in ascending order."""
        return list(chain.from_iterable(range(first, last + 1) for first, last in self.runs))

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(last - first + 1 for first, last in self.runs)
