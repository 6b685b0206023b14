"""Rows as they come from the server, made into marked records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outbox_sdk import MarkedRecord

Row = tuple[Any, ...]

_new = tuple.__new__


def records(rows: list[Row]) -> list[MarkedRecord]:
    """Makes the rows of a mark into records, ordered by id; a single row without an id stands for none."""
    if rows[0][0] is None:
        return []
    marked = [
        # Building the tuple directly takes a third of the named tuple's own constructor.
        _new(MarkedRecord, (number, topic, key, value, (), None, None, None))
        if not names and not values and key is not None and topic is not None
        else _record(number, topic, key, value, names, values)
        for number, topic, key, value, names, values in rows
    ]
    # The server touches rows in the order of its index, so this only makes sure.
    marked.sort(key=_id)
    return marked


def _id(record: MarkedRecord) -> int:
    return record[0]


def _record(
    number: int,
    topic: str,
    key: str,
    value: str | bytes | None,
    names: Sequence[str | None] | None,
    values: Sequence[str | None] | None,
) -> MarkedRecord:
    names, values = names or (), values or ()
    fault = None
    if len(names) != len(values):
        fault = (
            f"the row has {len(names)} header names and {len(values)} header values; write as many of each"
        )
    elif None in names:
        fault = "the row has a header whose name is null; give it a name"
    elif key is None or topic is None:
        fault = f"the row's {'key' if key is None else 'topic'} is null; a record needs both"
    if fault:
        return MarkedRecord(number, topic or "", key or "", value, fault=fault)
    headers = list(zip(names, values, strict=True))
    return _new(MarkedRecord, (number, topic, key, value, headers, None, None, None))
