"""About how many bytes a record has in memory."""

from __future__ import annotations

from outbox_sdk import MarkedRecord


def size_of(record: MarkedRecord) -> int:
    """Returns how many bytes, or characters of text, key, value and headers have together.

    Called for every record that a lane marks: text is not encoded for it.
    """
    value, headers = record.value, record.headers
    size = len(record.key) + (0 if value is None else len(value))
    if headers:
        size += sum(len(name) + len(text or "") for name, text in headers)
    return size
