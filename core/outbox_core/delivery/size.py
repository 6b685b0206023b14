"""The approximate size of a record in memory."""

from __future__ import annotations

from outbox_sdk import MarkedRecord


def size_of(record: MarkedRecord) -> int:
    """Returns the size of key, value and headers: bytes, or characters where they are text.

    It is called for every record that a lane marks, so it does not encode text.
    """
    value, headers = record.value, record.headers
    size = len(record.key) + (0 if value is None else len(value))
    if headers:
        size += sum(len(name) + len(text or "") for name, text in headers)
    return size
