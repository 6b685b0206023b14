"""Splits records into chunks of a limited size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from outbox_sdk import MarkedRecord

_OVERHEAD_BYTES = 20
"""About what Kafka's record format adds to a record."""


def chunks(records: Sequence[MarkedRecord], max_bytes: int | None) -> Iterator[Sequence[MarkedRecord]]:
    """Yields chunks of up to ``max_bytes`` bytes, or of a single larger record, in order.

    Yields at least one chunk, which is empty if there are no records.

    Args:
        records: What to split.
        max_bytes: The limit, for the uncompressed records; ``None`` for all records in one chunk.
    """
    start, size = 0, 0
    for index, record in enumerate(records if max_bytes is not None else ()):
        size += _size(record)
        if max_bytes is not None and size > max_bytes and index > start:
            yield records[start:index]
            start, size = index, _size(record)
    yield records[start:]


def _size(record: MarkedRecord) -> int:
    parts = [record.key, record.value, *(part for header in record.headers for part in header)]
    size = sum(len(part.encode() if isinstance(part, str) else part) for part in parts if part)
    return _OVERHEAD_BYTES + size
