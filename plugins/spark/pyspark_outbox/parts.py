"""Divides a batch among tasks, again and again the same; without PySpark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from zlib import crc32

from outbox_api import MarkedRecord, OutboxError

INDEX_BITS = 32
"""A position is the number of the batch, and in so many lower bits the row's place in it."""
ROWS_PER_PART = 2_500
MOST_PARTS = 8
"""A batch is divided among at most so many tasks, if the option ``partitions`` names no number."""
_LISTED = 20


@dataclass(frozen=True, slots=True)
class Positioned:
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
    parts = number or min(MOST_PARTS, -(-len(ids) // ROWS_PER_PART))
    divided: defaultdict[int, list[Positioned]] = defaultdict(list)
    base = batch << INDEX_BITS
    for place, row in enumerate(ids):
        record = found[row]
        if record.fault:
            raise OutboxError(
                f"row {row} of batch {batch} was changed after it was selected, and can be no "
                f"message now: {record.fault}; restore the row, and start the query again"
            )
        part = crc32(record.key.encode("utf-8", "surrogatepass")) % parts
        divided[part].append(Positioned(base | place, record))
    return [part for _, part in sorted(divided.items())]


def _require_all(batch: int, ids: Sequence[int], found: Iterable[int]) -> None:
    if missing := sorted(set(ids).difference(found)):
        shown = ", ".join(map(str, missing[:_LISTED])) + (", …" if len(missing) > _LISTED else "")
        raise OutboxError(
            f"{len(missing)} of {len(ids)} rows of batch {batch} are not in the outbox any more, though only "
            f"this query may delete them: {shown}; somebody else has deleted them, or the query's checkpoint "
            "is an older copy. They are not skipped: restore these rows, or begin with a new checkpoint"
        )
