"""How the columns of another table are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from outbox_api.portable.column_facts import ColumnFacts

_FLOATS = frozenset({"float4", "float8"})


def read(name: str, column: ColumnFacts) -> str:
    """Writes a column so that its value comes as text, without help of the driver; bytes come as they are."""
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


def meaning(column: ColumnFacts) -> Callable[[str], Any] | None:
    """Returns what makes a column's value of its text, as :func:`read` reads it; ``None`` for nothing."""
    return "1".__eq__ if column.type == "bit(1)" else _MEANINGS.get(column.base)
