"""Reads the rows of a batch that Spark's offset log names, again and again the same; without PySpark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from zlib import crc32

from outbox_api import Batch, MarkedRecord, OutboxError, OutboxTable

INDEX_BITS = 32
"""A position is the number of the batch, and in so many lower bits the row's place in it."""
ROWS_PER_PART = 2_500
MOST_PARTS = 8
"""A batch is read by at most so many tasks, if the option ``partitions`` names no number."""
_LISTED = 20


@dataclass(frozen=True, slots=True)
class Part:
    """What one task reads: rows of one batch, all of each of its keys; and their places in it, from 0."""

    batch: int
    rows: Batch
    places: Sequence[int]


@dataclass(frozen=True, slots=True)
class Positioned:
    """A record with its position in the stream; ``None`` outside of one."""

    position: int | None
    record: MarkedRecord


def parts_of(batch: int, rows: Batch, keys: Iterable[tuple[int, str]], number: int | None) -> list[Part]:
    """Divides a batch among tasks by its rows' keys."""
    ids = rows.ids()
    parts = number or min(MOST_PARTS, -(-len(ids) // ROWS_PER_PART))
    key_of = dict(keys)
    _require_all(batch, ids, key_of)
    divided: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for place, row in enumerate(ids):
        divided[crc32(key_of[row].encode("utf-8", "surrogatepass")) % parts].append((row, place))
    return [
        Part(batch, Batch.of([row for row, _ in part], rows.newest), [place for _, place in part])
        for _, part in sorted(divided.items())
    ]


def read(part: Part, table: OutboxTable) -> list[Positioned]:
    """Reads the rows of a part in the order of delivery; locks and changes nothing."""
    found = table.rows(part.rows)
    _require_all(part.batch, part.rows.ids(), {record.id for record in found})
    for record in found:
        if record.fault:
            raise OutboxError(
                f"row {record.id} of batch {part.batch} was changed after it was selected, and can be no "
                f"message now: {record.fault}; restore the row, and start the query again"
            )
    base = part.batch << INDEX_BITS
    return [Positioned(base | place, record) for place, record in zip(part.places, found, strict=True)]


def _require_all(batch: int, ids: Sequence[int], found: Iterable[int]) -> None:
    if missing := sorted(set(ids).difference(found)):
        shown = ", ".join(map(str, missing[:_LISTED])) + (", …" if len(missing) > _LISTED else "")
        raise OutboxError(
            f"{len(missing)} of {len(ids)} rows of batch {batch} are not in the outbox any more, though only "
            f"this query may delete them: {shown}; somebody else has deleted them, or the query's checkpoint "
            "is an older copy. They are not skipped: restore these rows, or begin with a new checkpoint"
        )
