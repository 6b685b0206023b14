"""What becomes of a row of another table, as an :class:`outbox_api.Intake` says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from hashlib import sha256
from typing import Any, Final, NamedTuple

from outbox_api.base.bounds import NO_TOPIC, is_topic
from outbox_api.base.record import Record
from outbox_api.intake.column_text import aware, text_of
from outbox_api.intake.intake import Intake, parts
from outbox_api.intake.json_path import Member, members_of, reach, texts
from outbox_api.seams.placement import partition_of, timestamp_of

FAULT: Final = "outbox: "
"""Begins the only header name of a row that could not be mapped; it has no value, and the reason follows."""

Headers = list[tuple[str, str | None]]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
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


def take(intake: Intake, row: Mapping[str, Any], *, binary: bool, bind: Callable[[Record], object]) -> Taken:
    """Makes a row into what the outbox holds; one that cannot be, comes with its value and says why.

    A key that the outbox cannot hold is then written as escapes, and as no other key is.

    Args:
        intake: What the columns mean.
        row: Column → value as its driver returns it, for each of ``intake.columns``.
        binary: Whether the outbox keeps values as bytes.
        bind: Raises ``ValueError`` for a record that the outbox cannot hold, as ``Insert.bind`` does.
    """
    reader = _Row(intake, row)
    try:
        taken = reader.mapped(binary=binary)
        headers = tuple(zip(taken.names, taken.values, strict=True))
        bind(Record(taken.topic, taken.key, taken.value, headers))
    except ValueError as error:
        where = f"row {text_of(row[intake.id])} of table {intake.table}"
        reason = _escaped(f"{FAULT}{where} cannot be mapped: {error}")
        value = _held_value(reader, bind, binary=binary)
        return Taken("", _held_key(reader, bind), value, [reason], [], None, None)
    return taken


def key_of(intake: Intake, row: Mapping[str, Any]) -> str:
    """Returns the key of a row; empty for null and for what cannot be read."""
    try:
        return _Row(intake, row).key()
    except ValueError:
        return ""


def topic_problem(intake: Intake, row: Mapping[str, Any]) -> str:
    """Says why a row has no topic, or nothing."""
    try:
        _Row(intake, row).topic()
    except ValueError as error:
        return str(error)
    return ""


def held_key(intake: Intake, row: Mapping[str, Any], bind: Callable[[Record], object]) -> str:
    """Returns the key that :func:`take` gives a row, of which only the columns of the key are there."""
    return _held_key(_Row(intake, row), bind)


def fault(names: Sequence[Any], values: Sequence[Any]) -> str | None:
    """Returns why a taken row could not be mapped, or ``None`` for any other row."""
    if values or len(names) != 1 or not isinstance(names[0], str) or not names[0].startswith(FAULT):
        return None
    return names[0].removeprefix(FAULT)


class _Row:
    """Reads one row as an intake says; raises ``ValueError`` for what cannot be mapped."""

    def __init__(self, intake: Intake, row: Mapping[str, Any]) -> None:
        self._intake = intake
        self._row = row
        self._zone: tzinfo = intake.tz

    def mapped(self, *, binary: bool) -> Taken:
        intake = self._intake
        value = self.value()
        if isinstance(value, str) and binary:
            value = value.encode()
        elif isinstance(value, bytes) and not binary:
            try:
                value = value.decode()
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"column '{intake.value}' holds bytes that are no text, the outbox text: {error}"
                ) from error
        headers = self._headers()
        return Taken(
            topic=self.topic(),
            key=self.key(),
            value=value,
            names=[name for name, _ in headers],
            values=[each for _, each in headers],
            partition=self._partition(intake.partition) if intake.partition else None,
            timestamp_ms=self._moment(intake.timestamp) if intake.timestamp else None,
        )

    def key(self) -> str:
        """Returns the key; empty for null."""
        return self._text(self._intake.key) or ""

    def value(self) -> str | bytes | None:
        """Returns the value: bytes and texts as they are, members as JSON, anything else as its text."""
        [member] = members_of(self._intake.value)
        found = self._row[member.column]
        if member.path:
            return self._member(member, written=True)
        if isinstance(found, bytearray | memoryview):
            return bytes(found)
        return found if isinstance(found, str | bytes) else text_of(found, self._zone)

    def _text(self, reference: str) -> str | None:
        """Returns the text of the first member of a reference that is not null."""
        for member in members_of(reference):
            found = self._member(member) if member.path else text_of(self._row[member.column], self._zone)
            if found is not None:
                return found
        return None

    def _member(self, member: Member, *, written: bool = False) -> str | None:
        document = self._document(member.column)
        try:
            return None if document is None else reach(document, member.path, written=written)
        except ValueError as error:
            raise ValueError(f"column '{member.column}' is not JSON: {error}") from error

    def _document(self, column: str) -> str | None:
        found = self._row[column]
        if isinstance(found, bytes | bytearray | memoryview):
            return bytes(found).decode()
        return text_of(found)

    def topic(self) -> str:
        """Returns the topic."""
        found = []
        for literal, name in parts(self._intake.topic):
            found.append(literal)
            if name:
                if (text := self._text(name)) is None:
                    raise ValueError(f"column '{name}' is null, and the topic is made of it")
                found.append(text)
        topic = "".join(found)
        if not is_topic(topic):
            raise ValueError(f"its topic is {topic[:_SHOWN]!r} of {len(topic)} characters; {NO_TOPIC}")
        return topic

    def _headers(self) -> Headers:
        intake = self._intake
        found = {name: self._text(reference) for name, reference in intake.headers.items()}
        if intake.headers_json:
            found |= self._object(intake.headers_json)
        headers = list(found.items())
        if intake.header_names:
            headers += self._lists(intake.header_names, intake.header_values)
        return headers

    def _object(self, reference: str) -> dict[str, str | None]:
        [member] = members_of(reference)
        return dict(self._texts(member, dict, f"column '{member.column}' is not a JSON object"))

    def _lists(self, names: str, values: str) -> Iterator[tuple[str, str | None]]:
        fault = f"columns '{names}' and '{values}' are not lists of one length"
        lists = [[text for _, text in self._texts(Member(column), list, fault)] for column in (names, values)]
        if len(lists[0]) != len(lists[1]):
            raise ValueError(fault)
        return ((str(name), value) for name, value in zip(*lists, strict=True))

    def _texts(self, member: Member, kind: type, fault: str) -> list[tuple[str, str | None]]:
        """Returns the names and texts of what JSON holds; no number is rounded."""
        document = self._member(member) if member.path else self._document(member.column)
        try:
            found = None if document is None else json.loads(document)
            if isinstance(found, kind):
                return list(texts(document or ""))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"column '{member.column}' is not JSON: {error}") from error
        if found is None:
            return []
        raise ValueError(fault)

    def _partition(self, column: str) -> int | None:
        try:
            return partition_of(self._row[column])
        except ValueError as error:
            raise ValueError(
                f"column '{column}' holds no whole number that a partition may have: {error}"
            ) from error

    def _moment(self, column: str) -> int | None:
        value = self._row[column]
        try:
            return None if value is None else timestamp_of(milliseconds(value, self._zone))
        except (ValueError, OverflowError) as error:
            raise ValueError(f"column '{column}' holds no moment that a message may have: {error}") from error


def milliseconds(value: Any, zone: tzinfo) -> int:
    """Returns a moment in milliseconds since the epoch; a number is one already.

    Raises:
        ValueError: It is none (or ``OverflowError``).
    """
    if isinstance(value, datetime):
        return (aware(value, zone) - _EPOCH) // _MILLISECOND
    try:
        number = Decimal(str(value))
    except ArithmeticError:
        return milliseconds(datetime.fromisoformat(str(value)), zone)
    if not number.is_finite() or number % 1:
        raise ValueError(f"{value} is no whole number of milliseconds")
    return int(number)


def _held_key(row: _Row, bind: Callable[[Record], object]) -> str:
    try:
        key = row.key()
    except ValueError as error:  # a member of what is no JSON
        return _escaped(str(error)[:_SHOWN])
    try:
        bind(Record("", key, None))
    except ValueError:
        # Whoever has the same key must stay behind it, and nobody else.
        digest = sha256(key.encode(errors="surrogatepass")).hexdigest()
        return f"{_escaped(key[:_SHOWN])} {digest}"
    return key


def _held_value(row: _Row, bind: Callable[[Record], object], *, binary: bool) -> str | bytes | None:
    try:
        found = row.value()
    except ValueError:  # as above
        return None
    if found is None or (binary and isinstance(found, bytes)):
        return found
    text = found if isinstance(found, str) else found.decode(errors="backslashreplace")
    if binary:
        return text.encode(errors="backslashreplace")
    try:
        bind(Record("", "", text))
    except ValueError:
        return _escaped(text)
    return text


def _escaped(text: str) -> str:
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\0")
