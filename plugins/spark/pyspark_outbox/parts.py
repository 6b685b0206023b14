"""Divides a batch among tasks, again and again the same; without PySpark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from zlib import crc32

from outbox_api import MarkedRecord, OutboxError
from outbox_core.delivery.size import size_of

INDEX_BITS = 32
"""A position is the number of the batch, and in so many lower bits the row's place in it."""
BYTES_PER_PART, MOST_PARTS = 6 << 20, 8
"""For so many bytes a batch gets a task, up to so many, if the option ``partitions`` names no number.

Each task costs some 50 ms of a core; Spark warns of one that has more than 1,000 KiB, compressed.
"""
ROW_BYTES = 100
"""Of a row beside its topic, key, value and headers, about."""
_LISTED = 20


class Positioned(NamedTuple):
    """A record with its position in the stream; ``None`` outside of one."""

    position: int | None
    record: MarkedRecord


def parts_of(
    batch: int, ids: Sequence[int], records: Iterable[MarkedRecord], number: int | None
) -> list[list[Positioned]]:
    """Divides a batch among tasks: each gets all rows of its keys, in the order of delivery.

    Args:
        batch: Its number.
        ids: Of its rows, in the order of delivery.
        records: What was found of it, in any order, maybe with others.
        number: Among how many tasks; ``None`` for as many as its size calls for.

    Raises:
        OutboxError: A row is missing, or was changed and can be no message any more.
    """
    found = {record.id: record for record in records}
    _require_all(batch, ids, found)
    return divided(batch, ids, found, number)


def divided(
    batch: int, ids: Sequence[int], found: Mapping[int, MarkedRecord], number: int | None
) -> list[list[Positioned]]:
    """Divides as :func:`parts_of` does, and leaves out what was not found.

    Raises:
        OutboxError: A row was changed, and can be no message any more.
    """
    size = sum(map(size_of, found.values())) + ROW_BYTES * len(found)
    parts = number or min(MOST_PARTS, -(-size // BYTES_PER_PART))
    of_part: defaultdict[int, list[Positioned]] = defaultdict(list)
    base = batch << INDEX_BITS
    for place, row in enumerate(ids):
        if (record := found.get(row)) is None:
            continue
        if record.fault:
            raise OutboxError(
                f"row {record.id} of batch {batch} was changed after it was selected, and can be no "
                f"message now: {record.fault}; restore the row, and start the query again"
            )
        part = crc32(record.key.encode("utf-8", "surrogatepass")) % parts
        of_part[part].append(Positioned(base | place, record))
    return [part for _, part in sorted(of_part.items())]


def _require_all(batch: int, ids: Sequence[int], found: Iterable[int]) -> None:
    if missing := sorted(set(ids).difference(found)):
        shown = ", ".join(map(str, missing[:_LISTED])) + (", …" if len(missing) > _LISTED else "")
        raise OutboxError(
            f"{len(missing)} of {len(ids)} rows of batch {batch} are not in the outbox any more, though only "
            f"this query may delete them: {shown}; somebody else has deleted them, or the query's checkpoint "
            "is an older copy. They are not skipped: restore these rows, or begin with a new checkpoint"
        )
