"""The approximate size of a record in memory."""

from __future__ import annotations

from outbox_api import MarkedRecord


def size_of(record: MarkedRecord) -> int:
    """Returns the size of topic, key, value and headers: bytes, or characters where they are text.

    It is called for every record that a lane marks, so it does not encode text.
    """
    _, topic, key, value, headers, _, _, _, _ = record
    size = len(topic) + len(key) + (len(value) if value else 0)
    for name, text in headers:
        size += len(name) + (len(text) if text else 0)
    return size
