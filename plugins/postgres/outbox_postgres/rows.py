"""Makes the rows that the server returns into records; dead letters among them, whose headers are arrays."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import psycopg
from outbox_api import Header, MarkedRecord
from outbox_api.base.bounds import too_large, too_long
from outbox_api.intake import taken
from outbox_api.portable import PortableDeadLetters
from outbox_api.portable.kept import PortableKept
from outbox_api.portable.rows import header_fault, null_fault
from outbox_api.seams.placement import placed_row

from outbox_postgres.layout import Layout
from outbox_postgres.session import Session

Row = tuple[Any, ...]
"""Id, topic, key, value, header names, header values; when created; its bytes in a list if too many."""

PORTION = 100
"""How many rows are fetched at once: few objects for Python's garbage collector and the processor's cache."""

_PLAIN = 8
"""Columns of a row without partition and timestamp."""

_new = tuple.__new__
_id = itemgetter(0)


class Claimed(NamedTuple):
    """The result of a mark, or of an advance.

    Attributes:
        purged: How many rows it deleted.
        found: How many rows it found.
        basis: See ``predicates.basis``, if it differs from what the mark was given, or ``None``.
        records: What it marked or selected, ordered by id.
        newest: The greatest ``create_time`` of what it selected, as text.
    """

    purged: int
    found: int
    basis: int | None
    records: list[MarkedRecord]
    newest: str


def claimed(cursor: psycopg.Cursor[Any]) -> Claimed | None:
    """Reads what a mark or an advance returned; ``None`` when it returned nothing."""
    # The server returns the parts of UNION ALL in their order.
    first = cursor.fetchone()
    if first is None:
        return None
    purged, found, basis = first[-1]
    marked: list[MarkedRecord] = []
    while rows := cursor.fetchmany(PORTION):
        marked += records(rows)
    # The UPDATE returns rows in the order of the index, which SQL does not guarantee.
    marked.sort(key=_id)
    return Claimed(purged, found, basis, marked, first[1] or "")


def records(rows: Sequence[Row]) -> list[MarkedRecord]:
    """Makes rows into records.

    The only code in Python that runs for every row: the two usual shapes, no header and one, are therefore
    built without a call. A row that cannot be a message becomes a record with a fault.
    """
    if rows and len(rows[0]) > _PLAIN:
        return [_record(row) for row in rows]
    return [
        # tuple.__new__ takes two thirds of the time of the named tuple's own constructor.
        _new(MarkedRecord, (number, topic, key, value, (), None, None, None, created))
        if not names and not values and topic is not None and key is not None and huge is None
        else _record(row)
        if names is None
        or values is None
        or not len(names) == len(values) == 1
        or names[0].__class__ is not str
        or values[0].__class__ is list
        or topic is None
        or key is None
        or huge is not None
        else _new(
            MarkedRecord, (number, topic, key, value, ((names[0], values[0]),), None, None, None, created)
        )
        for row in rows
        for number, topic, key, value, names, values, created, huge in (row,)
    ]


def _record(row: Row) -> MarkedRecord:
    made = record((*row[:6], row[-1]))._replace(created=row[-2])
    return placed_row(made, row[6], row[7]) if len(row) > _PLAIN else made


def record(row: Row) -> MarkedRecord:
    """Makes one row, without when it was created, into a record; with a fault if it can be no message."""
    number, topic, key, value, names, values, huge = row
    headers: list[Header] = []
    fault = (
        (too_long(*huge[1:]) or too_large(huge[0])) if huge else _fault(topic, key, names or (), values or ())
    )
    if fault is None:
        headers = list(zip(names or (), values or (), strict=True))
    return MarkedRecord(number, topic or "", key or "", value, headers, fault=fault)


def _fault(topic: Any, key: Any, names: Sequence[Any], values: Sequence[Any]) -> str | None:
    if reason := taken.fault(names, values):
        return reason
    if topic is None or key is None:
        return null_fault(topic)
    if reason := header_fault(names, values):
        return reason
    if any(isinstance(part, list) for part in (*names, *values)):
        return "the row's header arrays have several dimensions; write one name and one value for each header"
    return None


class PostgresKept(PortableKept):
    """The kept records of PostgreSQL, whose headers are arrays. Made by ``PostgresDialect.kept``."""

    def _read(self, row: Sequence[Any]) -> MarkedRecord:
        return record((*row, None))


class PostgresDeadLetters(PortableDeadLetters):
    """The dead letters of PostgreSQL. Made by ``PostgresDialect.dead_letters``."""

    def __init__(self, session: Session, layout: Layout) -> None:
        super().__init__(session, layout.tables, binary=layout.binary)
        # Whoever frees a key has the next mark of each lane start at the head, see ``settled``.
        self._sql.hold_lanes = (
            f"UPDATE {self._sql.fence} SET releases = releases + 1"  # noqa: S608 - quoted
            " WHERE name = {name} RETURNING lane"
        )

    def _read(self, row: Sequence[Any]) -> MarkedRecord:
        return record((*row[:6], None))
