"""The intake: a table of another layout, whose rows are moved into the outbox before they are marked.

A table that was made for some other tool, or for an application's own publisher, lacks what a harvest needs:
a number that gives the order, and room for a mark. It stays as it is. Lane 0 moves its rows into the outbox,
in their order, in transactions that delete them there and stash them here; from then on they are records
like any other. Who reads the other table sees rows vanish, as after any harvest.

This module says what becomes of a row. Dialects do the moving.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cache
from hashlib import sha256
from string import Formatter
from typing import Any, Final, NamedTuple

from outbox_api.errors import ConfigError
from outbox_api.record import Header, Record

LAYOUTS: Final[Mapping[str, Mapping[str, Any]]] = {
    # Debezium's outbox event router, by its defaults.
    "debezium": {
        "id": "id",
        "topic": "outbox.event.{aggregatetype}",
        "key": "aggregateid",
        "value": "payload",
        "headers": {"id": "id"},
    },
}
"""Layouts that are known by name."""

FAULT: Final = "outbox: "
"""Begins the only header name of a row that could not be mapped; it has no value, and the reason follows."""

Value = str | bool | None
"""What a column is compared with, or set to."""

_TOPIC_LENGTH = 249
_MS = 1000
_PARTITIONS = range(2**31)
_MOMENTS = range(-(2**63), 2**63)
_SHOWN = 100
"""Characters of a key that cannot be held, for those who look at it."""


class Taken(NamedTuple):
    """A row, made into what the outbox holds.

    Attributes:
        topic: The topic; empty for a row with a fault.
        key: The key.
        value: The value.
        names: The headers' names, or a fault.
        values: The headers' values.
        partition: The partition, or ``None``.
        timestamp_ms: Milliseconds since the epoch, or ``None``.
    """

    topic: str
    key: str
    value: str | bytes | None
    names: list[str]
    values: list[str | None]
    partition: int | None
    timestamp_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """A table to take rows in from, and what its columns mean.

    Attributes:
        table: The table, optionally with its schema.
        layout: A layout that is known by name, whose columns the other keys replace: ``debezium``.
        id: The column that tells rows apart; unique.
        order: The column whose order is that of the records within a key. Default: ``id`` if it is a whole
            number; else the order of commits, where the database can tell it.
        topic: The topic, with columns in braces: ``outbox.event.{aggregatetype}``.
        key: The column with the key; null is the empty key.
        value: The column with the value: text, JSON, or bytes; null is a tombstone.
        headers: Header → column. A null leaves the header's value out.
        headers_json: A column with more headers, a JSON object of texts.
        partition: The column with the partition; null leaves the choice to the publisher.
        timestamp: The column with the message's timestamp: a moment, or milliseconds since the epoch.
        where: Column → value, or values, of the rows that are taken in; ``None`` is null. All must hold.
        done: Column → value that says of a row that it was taken in: it is written instead of deleting the
            row, which is not taken in again. ``now()`` is the database's present time.
    """

    table: str
    layout: str | None = None
    id: str = ""
    order: str = ""
    topic: str = ""
    key: str = ""
    value: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    headers_json: str = ""
    partition: str = ""
    timestamp: str = ""
    where: Mapping[str, Value | Sequence[Value]] = field(default_factory=dict)
    done: Mapping[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.layout is not None and self.layout not in LAYOUTS:
            raise ConfigError(f"layout is '{self.layout}'; known by name: {', '.join(LAYOUTS)}")
        for name, column in LAYOUTS.get(self.layout or "", {}).items():
            if not getattr(self, name):
                object.__setattr__(self, name, column)
        missing = [name for name in ("id", "topic", "key", "value") if not getattr(self, name)]
        if missing:
            raise ConfigError(f"intake of table '{self.table}' needs {', '.join(missing)}, or a layout")
        try:
            if "" in (name for _, name in _parts(self.topic)):
                raise ValueError("braces with nothing in them")  # noqa: TRY301 - as the parser's own
        except ValueError as error:
            raise ConfigError(f"topic is '{self.topic}': {error}; write a column in braces") from error

    @property
    def columns(self) -> list[str]:
        """The columns that are read, each once, in a fixed order."""
        named = [name for _, name in _parts(self.topic) if name]
        others = (self.headers_json, self.partition, self.timestamp)
        every = (self.id, self.order, *named, self.key, self.value, *self.headers.values(), *others)
        return [column for column in dict.fromkeys(every) if column]

    def take(self, row: Mapping[str, Any], *, binary: bool, bind: Callable[[Record], object]) -> Taken:
        """Makes a row into what the outbox holds; one that cannot be, comes with its value and says why.

        A key that the outbox cannot hold is then written as escapes, and as no other key is.

        Args:
            row: Column → value as its driver returns it, for each of ``columns``.
            binary: Whether the outbox keeps values as bytes.
            bind: Raises ``ValueError`` for a record that the outbox cannot hold, as ``Insert.bind`` does.
        """
        try:
            taken = self._mapped(row, binary=binary)
            _hold(bind, taken.topic, taken.key, taken.value, zip(taken.names, taken.values, strict=True))
        except ValueError as error:
            reason = f"{FAULT}row {row[self.id]} of table {self.table} cannot be mapped: {error}"
            value = _held_value(row[self.value], bind, binary=binary)
            return Taken("", _held_key(row[self.key], bind), value, [_escaped(reason)], [], None, None)
        return taken

    def _mapped(self, row: Mapping[str, Any], *, binary: bool) -> Taken:
        value = _plain(row[self.value])
        if isinstance(value, str) and binary:
            value = value.encode()
        elif isinstance(value, bytes) and not binary:
            try:
                value = value.decode()
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"column '{self.value}' holds bytes that are no text, the outbox text: {error}"
                ) from error
        headers = {name: _text(row[column]) for name, column in self.headers.items()} | self._json(row)
        return Taken(
            topic=self._topic(row),
            key=_text(row[self.key]) or "",
            value=value,
            names=list(headers),
            values=list(headers.values()),
            partition=_whole(row[self.partition], self.partition) if self.partition else None,
            timestamp_ms=_moment(row[self.timestamp], self.timestamp) if self.timestamp else None,
        )

    def _topic(self, row: Mapping[str, Any]) -> str:
        parts = []
        for literal, name in _parts(self.topic):
            parts.append(literal)
            if name:
                if (text := _text(row[name])) is None:
                    raise ValueError(f"column '{name}' is null, and the topic is made of it")
                parts.append(text)
        topic = "".join(parts)
        if not 0 < len(topic) <= _TOPIC_LENGTH:
            raise ValueError(f"its topic has {len(topic)} characters; Kafka takes 1 to {_TOPIC_LENGTH}")
        return topic

    def _json(self, row: Mapping[str, Any]) -> dict[str, str | None]:
        found = row[self.headers_json] if self.headers_json else None
        if isinstance(found, str | bytes):
            try:
                found = json.loads(found)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"column '{self.headers_json}' is not JSON: {error}") from error
        if found is None:
            return {}
        if not isinstance(found, Mapping):
            raise ValueError(f"column '{self.headers_json}' is not a JSON object")  # noqa: TRY004 - bad data
        return {
            str(name): part if isinstance(part, str | None) else json.dumps(part)
            for name, part in found.items()
        }


def fault(names: Sequence[Any], values: Sequence[Any]) -> str | None:
    """Returns why a taken row could not be mapped, or ``None`` for any other row."""
    if values or len(names) != 1 or not isinstance(names[0], str) or not names[0].startswith(FAULT):
        return None
    return names[0].removeprefix(FAULT)


@cache
def _parts(topic: str) -> list[tuple[str, str | None]]:
    """Reads a template once: text, and the column behind it, none behind the last."""
    return [(literal, name) for literal, name, _, _ in Formatter().parse(topic)]


def _plain(value: Any) -> str | bytes | None:
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return value if isinstance(value, str | bytes) else _text(value)


def _text(value: Any) -> str | None:
    match value:
        case None:
            return None
        case bytes() | bytearray() | memoryview():
            return bytes(value).decode(errors="backslashreplace")
        case dict() | list():
            return json.dumps(value, ensure_ascii=False)
        case date():
            return value.isoformat()
    return str(value)


def _whole(value: Any, column: str) -> int | None:
    try:
        number = None if value is None else int(value)
        if number is None or (number in _PARTITIONS and (isinstance(value, str | bytes) or number == value)):
            return number
    except (ValueError, TypeError, OverflowError):
        pass  # said below
    raise ValueError(f"column '{column}' holds no whole number that a partition may have")


def _moment(value: Any, column: str) -> int | None:
    if value is None:
        return None
    try:
        milliseconds = _milliseconds(value)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"column '{column}' holds no moment: {error}") from error
    if milliseconds not in _MOMENTS:
        raise ValueError(f"column '{column}' holds no moment that a message may have")
    return milliseconds


def _milliseconds(value: Any) -> int:
    if isinstance(value, datetime):
        return int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * _MS)
    text = str(value)
    return int(text) if text.lstrip("-").isdigit() else _milliseconds(datetime.fromisoformat(text))


def _hold(
    bind: Callable[[Record], object],
    topic: str,
    key: str,
    value: str | bytes | None,
    headers: Iterable[Header] = (),
) -> None:
    """Raises ``ValueError`` for what no outbox can hold, or this one cannot."""
    record = Record(topic, key, value, tuple(headers))
    for text in (topic, key, value, *(part for header in record.headers for part in header)):
        if isinstance(text, str):
            text.encode()  # raises for half of a surrogate pair
    bind(record)


def _held_key(value: Any, bind: Callable[[Record], object]) -> str:
    key = _text(value) or ""
    try:
        _hold(bind, "", key, None)
    except ValueError:
        # Whoever has the same key must stay behind it, and nobody else.
        digest = sha256(key.encode(errors="surrogatepass")).hexdigest()
        return f"{_escaped(key[:_SHOWN])} {digest}"
    return key


def _held_value(value: Any, bind: Callable[[Record], object], *, binary: bool) -> str | bytes | None:
    found = _plain(value)
    if found is None or (binary and isinstance(found, bytes)):
        return found
    text = _text(found) or ""
    if binary:
        return text.encode(errors="backslashreplace")
    try:
        _hold(bind, "", "", text)
    except ValueError:
        return _escaped(text)
    return text


def _escaped(text: str) -> str:
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\0")
