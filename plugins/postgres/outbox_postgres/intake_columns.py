"""How the columns of another table are read, and what the catalogue says of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from outbox_api.portable.column_facts import ColumnFacts, Nature

from outbox_postgres.catalogue import SEQUENCES
from outbox_postgres.origin_columns import Column
from outbox_postgres.search_path import Connection

_STEPS = f"""
SELECT a.attname, CASE WHEN s.seqcycle THEN -1 ELSE 1 END * s.seqincrement * s.seqcache
{SEQUENCES} AND a.attnum > 0"""
"""By how much the numbers of a column differ that one session gets, and that others get meanwhile; below 0 if
they do not always rise."""

_FLOATS = frozenset({"float4", "float8"})


def facts(connection: Connection, oid: int, columns: Mapping[str, Column]) -> dict[str, ColumnFacts]:
    """Returns what the catalogue says of the columns of a table."""
    steps = {row[0]: int(row[1]) for row in connection.execute(_STEPS, (oid,)).fetchall()}
    found = {
        name: ColumnFacts(
            column.type.lower(),
            default=(column.default or "").lower(),
            step=steps.get(name, 0),
            required=column.not_null,
        )
        for name, column in columns.items()
    }
    # A domain is what it is made of.
    return {
        name: each._replace(type=columns[name].base) if each.nature is Nature.OTHER else each
        for name, each in found.items()
    }


def read(name: str, column: Column) -> str:
    """Writes a column so that its value comes as text, without help of the driver; bytes come as they are.

    Args:
        name: The column as SQL writes it.
        column: The column.
    """
    match column.base:
        case "bytea":
            return name
        case "timestamp" | "date":
            return f"to_jsonb({name}) #>> ARRAY[]::text[]"
        case "timestamptz":
            return f"to_jsonb({name} AT TIME ZONE 'UTC') #>> ARRAY[]::text[]"
    return f"to_jsonb({name})::text" if column.base.startswith("_") else f"{name}::text"


def _moment(text: str) -> Any:
    """Returns a moment without a zone; what Python has no moments for stays as it is."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return text


def _instant(text: str) -> Any:
    moment = _moment(text)
    return moment.replace(tzinfo=UTC) if isinstance(moment, datetime) else moment


_MEANINGS: Final[Mapping[str, Callable[[str], Any]]] = {
    "timestamp": _moment,
    "timestamptz": _instant,
    **dict.fromkeys(_FLOATS, float),
}


def meaning(column: Column) -> Callable[[str], Any] | None:
    """Returns what makes a column's value of its text, as :func:`read` reads it; ``None`` for nothing."""
    return "1".__eq__ if column.type == "bit(1)" else _MEANINGS.get(column.base)
