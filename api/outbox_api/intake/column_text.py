"""The text of a column's value: one for each type, the same on every database."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from typing import Any
from uuid import UUID

_UUID_BYTES = 16


def text_of(value: Any, zone: tzinfo = UTC) -> str | None:  # noqa: PLR0911 - one for each type
    """Returns the text of a value as its driver returned it; ``None`` for null.

    Args:
        value: The value. Different bytes have different texts.
        zone: Where times without a zone were written.
    """
    match value:
        case None | str():
            return value
        case bool():
            return "true" if value else "false"
        case bytes() | bytearray() | memoryview():
            found = bytes(value)
            return str(UUID(bytes=found)) if len(found) == _UUID_BYTES else found.hex()
        case Decimal():
            return format(value, "f")
        case datetime():
            return rfc3339(value, zone)
        case date() | time():
            return value.isoformat()
        case timedelta():
            return _clock(value)
        case dict() | list():
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=text_of)
    return str(value)  # a float's is that of repr


def rfc3339(value: datetime, zone: tzinfo = UTC) -> str:
    """Writes a moment in UTC, with as many digits of a second as it has; without a zone it is of ``zone``."""
    try:
        moment = aware(value, zone).astimezone(UTC)
    except OverflowError:  # in the first or the last hours that there are
        return value.isoformat()
    written = moment.replace(tzinfo=None).isoformat()
    return f"{written.rstrip('0') if moment.microsecond else written}Z"


def aware(value: datetime, zone: tzinfo) -> datetime:
    """Returns a moment that knows its zone; an hour that a zone has twice is taken for the first."""
    return value if value.tzinfo else value.replace(tzinfo=zone)


def in_utc(value: Any) -> Any:
    """Returns a moment that is one in UTC, and anything else as it is."""
    return aware(value, UTC) if isinstance(value, datetime) else value


def is_set(value: Any) -> bool:
    """Returns whether a single bit is set, as its driver returned it."""
    return value not in (b"\0", 0)


def _clock(value: timedelta) -> str:
    sign, span = ("-", -value) if value < timedelta() else ("", value)
    minutes, rest = divmod(span, timedelta(minutes=1))
    seconds = f"{rest.seconds:02}" + (f".{rest.microseconds:06}".rstrip("0") if rest.microseconds else "")
    return f"{sign}{minutes // 60:02}:{minutes % 60:02}:{seconds}"
