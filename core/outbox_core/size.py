"""How many bytes a record has."""

from __future__ import annotations

from outbox_sdk import MarkedRecord


def size_of(record: MarkedRecord) -> int:
    """Returns how many bytes key, value and headers have together."""
    size = _length(record.key) + _length(record.value)
    for name, value in record.headers:
        size += _length(name) + _length(value)
    return size


def _length(part: str | bytes | None) -> int:
    if part is None:
        return 0
    return len(part) if isinstance(part, bytes) or part.isascii() else len(part.encode(errors="replace"))
