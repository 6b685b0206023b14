"""What of a record options can name: placeholders in a text, and fields of a value in JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from string import Formatter
from typing import Any

from outbox_api import ConfigError, Outgoing, TransformError

from outbox_core.text.spelling import nearest_key

_PLACEHOLDERS = ("topic", "key", "header.NAME", "field.PATH")


class Template:
    """A text with placeholders in braces, of which a record fills in each."""

    def __init__(self, text: str) -> None:
        try:
            parts = list(Formatter().parse(text))
        except ValueError as error:
            raise ConfigError(f"'{text}' is no template: {error}; '{{{{' is a brace") from None
        self._parts = [
            (literal, None if name is None else _placeholder(text, name, plain=not (spec or conversion)))
            for literal, name, spec, conversion in parts
        ]

    def filled(self, record: Outgoing) -> str:
        """Returns the text for a record."""
        return "".join(literal + (fill(record) if fill else "") for literal, fill in self._parts)


def _placeholder(text: str, name: str, *, plain: bool) -> Callable[[Outgoing], str]:
    kind, _, rest = name.partition(".")
    match (kind, bool(rest), plain):
        case ("topic", False, True):
            return lambda record: record.topic
        case ("key", False, True):
            return lambda record: record.key
        case ("header", True, True):
            return lambda record: _header(record, rest)
        case ("field", True, True):
            return lambda record: _field(record, rest)
    nearest = nearest_key(name, [*_PLACEHOLDERS]) if plain else None
    known = f"did you mean '{{{nearest}}}'?" if nearest else f"there are {{{'}, {'.join(_PLACEHOLDERS)}}}"
    raise ConfigError(f"'{text}' has an unknown placeholder '{{{name}}}'; {known}")


def _header(record: Outgoing, name: str) -> str:
    value = header_text(record, name)
    if value is None:
        raise TransformError(f"the record has no header '{name}' that is text")
    return value


def _field(record: Outgoing, path: str) -> str:
    text = field_text(json_value(record), path)
    if text is None:
        raise TransformError(f"the value has no field '{path}' that is a text, a number, true or false")
    return text


def header_text(record: Outgoing, name: str) -> str | None:
    """Returns the last header of a name as text; ``None`` if there is none, or it is not UTF-8."""
    value = next((value for header, value in reversed(record.headers) if header == name), None)
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return None


def with_headers(record: Outgoing, made: Mapping[str, str], removed: Collection[str] = ()) -> Outgoing:
    """Returns a record with headers behind its own, of which those of the same or a removed name are gone."""
    kept = [header for header in record.headers if header[0] not in made and header[0] not in removed]
    return record._replace(headers=(*kept, *made.items()))


def json_value(record: Outgoing, *, exact: bool = False) -> Any:
    """Returns a record's value, parsed; ``None`` for a tombstone.

    Numbers that would be rounded are refused if ``exact``; otherwise they are the text that the value has.

    Raises:
        TransformError: It is not JSON, or has such a number.
    """
    if record.value is None:
        return None
    try:
        return json.loads(record.value, parse_float=_exact if exact else _as_written, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise TransformError("the value is not JSON") from None


def _refuse(_: str) -> None:
    raise ValueError("not a number in JSON")


def _as_written(text: str) -> float | str:
    number = float(text)
    return number if Decimal(text) == Decimal(repr(number)) else text


def _exact(text: str) -> float:
    number = _as_written(text)
    if isinstance(number, str):
        raise TransformError("the value has a number with more digits than it can be written with again")
    return number


def field_text(value: Any, path: str) -> str | None:
    """Returns a field as text, as JSON writes it; ``None`` if there is none, or it is an object or a list.

    ``path`` has names of members, with dots between them; numbers for items of lists.
    """
    for name in path.split("."):
        if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        elif isinstance(value, dict) and name in value:
            value = value[name]
        else:
            return None
    if value is None or isinstance(value, dict | list):
        return None
    return value if isinstance(value, str) else json.dumps(value)
