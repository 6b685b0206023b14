"""Makes rows of a portable outbox into records, and records into rows, also for the stasher."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, cast

from outbox_api.base.record import Header, MarkedRecord, Record
from outbox_api.intake import taken
from outbox_api.portable.idiom import Idiom
from outbox_api.portable.sources import COLUMNS, quoted
from outbox_api.portable.statements import stash
from outbox_api.portable.table_idiom import TableName
from outbox_api.seams.dialect import Insert
from outbox_api.seams.placement import placed_row

_TEXTS = {str, type(None)}
_SHORT = 1000
_AGE = len(COLUMNS)
"""The place of a row's age."""
_scan = json.JSONDecoder().raw_decode
_ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")


def records(rows: Sequence[Sequence[Any]], idiom: Idiom, now: float) -> list[MarkedRecord]:
    """Makes rows into records, with a fault where a row cannot be made into a message.

    Args:
        rows: The rows; behind ``COLUMNS`` they have their age in seconds, or nothing, and perhaps ``EXTRAS``.
        idiom: Reads what the driver returned.
        now: When the ages were asked for, in seconds since the epoch.
    """
    made = [record(row, idiom, None if row[_AGE] is None else now - float(row[_AGE])) for row in rows]
    if rows and len(rows[0]) > _AGE + 1:
        return [placed_row(each, *row[_AGE + 1 : _AGE + 3]) for each, row in zip(made, rows, strict=True)]
    return made


def record(row: Sequence[Any], idiom: Idiom, created: float | None = None) -> MarkedRecord:
    """Makes one row, created at a time, into a record; with a fault if it cannot be made into a message."""
    number, topic, key, value, names, values = row[:6]
    headers: list[Header] = []
    fault = None
    if type(topic) is not str or type(key) is not str:
        topic, key, fault = _place(topic, key, idiom)
    if fault is None and (names is not None or values is not None):
        headers, fault = _headers(names, values, idiom)
    try:
        read = idiom.read_value(value)
    except ValueError as error:
        read, fault = None, fault or str(error)
    return MarkedRecord(int(number), topic, key, read, headers, None, None, fault, created)


def octets(value: Any, idiom: Idiom) -> object:
    """Makes the parameter for a row's value that goes into a column of bytes, even for an invalid value."""
    try:
        return idiom.bytes_parameter(idiom.read_value(value))
    except ValueError:
        return idiom.bytes_parameter(value if isinstance(value, bytes) else str(value))


def spellings(key: str) -> set[bytes]:
    """Returns the bytes that a key may have in a column of bytes of which :func:`record` has made ``key``."""
    text = key.encode()
    return {text, _ESCAPE.sub(lambda found: bytes.fromhex(found[1].decode()), text)}


def header_text(name: str, value: str | bytes | None) -> str | None:
    """Returns a header's value as text.

    Raises:
        ValueError: It is bytes that are not UTF-8.
    """
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"header '{name}' is not UTF-8; this outbox keeps header values as text") from error


def null_fault(topic: object) -> str:
    """Says that the topic, or else the key, of a row is null."""
    return f"the row's {'topic' if topic is None else 'key'} is null; a record needs both"


def header_fault(names: Sequence[object], values: Sequence[object]) -> str | None:
    """Says why header names and values cannot be paired; ``None`` if they can."""
    if len(names) != len(values):
        return f"the row has {len(names)} header names and {len(values)} header values; write as many of each"
    return "the row has a header whose name is null; give it a name" if None in names else None


def storable(text: str, encoding: str = "utf-8") -> str:
    """Writes what a column of text cannot hold as escapes: NUL, and what ``encoding`` does not have."""
    return text.replace("\0", "\\0").encode(encoding, "backslashreplace").decode(encoding)


def fitting(text: str, octets: int, encoding: str = "utf-8") -> str:
    """Returns what a column of ``octets`` bytes can hold of a text, see :func:`storable`; it is cut."""
    return storable(text, encoding).encode()[:octets].decode(errors="ignore")


def _place(topic: Any, key: Any, idiom: Idiom) -> tuple[str, str, str | None]:
    """Reads topic and key that are not plain texts both, and says what is wrong with them."""
    fault = None
    if topic is None or key is None:
        fault = null_fault(topic)
    elif not (_readable(topic) and _readable(key)):
        fault = f"the row's {'key' if _readable(topic) else 'topic'} is not UTF-8"
    return idiom.read_text(topic) or "", idiom.read_text(key) or "", fault


def _headers(names: Any, values: Any, idiom: Idiom) -> tuple[list[Header], str | None]:
    try:
        listed = (names if type(names) is str else idiom.read_text(names)) or ""
        keys = _names(listed) if len(listed) < _SHORT else _array(listed)
        texts = _array(values if type(values) is str else idiom.read_text(values))
    except (ValueError, RecursionError) as error:
        return [], f"the row's headers are not JSON arrays of texts: {error}"
    if reason := taken.fault(keys, texts) or header_fault(keys, texts):
        return [], reason
    return list(zip(cast("list[str]", keys), texts, strict=True)), None


def _readable(text: Any) -> bool:
    if isinstance(text, str):
        return True
    try:
        bytes(text).decode()
    except UnicodeDecodeError:
        return False
    except TypeError:  # a number, say, which is read as its digits
        return True
    return True


def _array(text: str | None) -> list[str | None]:
    if not text:
        return []
    # Most texts begin with the array and end with it; the other way takes twice as long.
    array, end = _scan(text) if text[0] == "[" else (None, 0)
    if end != len(text):
        array = json.loads(text)
    if not isinstance(array, list) or not _TEXTS.issuperset(map(type, array)):
        raise ValueError('write them like ["name"] and ["value"]')
    if "\\u" in text:  # half of a surrogate pair can be written in JSON, and is no text of a message
        for each in array:
            (each or "").encode()
    return array


_names = lru_cache(maxsize=256)(_array)  # most rows of an outbox have the same


def portable_insert(
    idiom: Idiom, table_name: Callable[[str], TableName] = TableName.parse
) -> Callable[[str, Mapping[str, object]], Insert]:
    """Returns the ``insert`` of a plugin's ``Driver``; it refuses the records that ``idiom`` refuses.

    Args:
        idiom: How the database writes SQL.
        table_name: Reads the name of a table.
    """

    def insert(table: str, constants: Mapping[str, object]) -> Insert:
        # They are parameters, too: some drivers send many rows in one INSERT, which takes nothing else.
        constant = {f"constant{number}": value for number, value in enumerate(constants.values())}
        columns = {column: column for column in COLUMNS[1:]}
        columns |= {quoted(idiom, TableName("", name)): place
                    for name, place in zip(constants, constant, strict=True)}  # fmt: skip
        sql = stash(idiom, quoted(idiom, table_name(table)), columns)
        return Insert(sql=sql, bind=partial(_row, idiom, constant) if constant else partial(bound, idiom))

    return insert


def bound(idiom: Idiom, record: Record) -> Mapping[str, object]:
    """Makes the parameters of a record.

    Raises:
        ValueError: The database cannot hold it.
    """
    names = [name for name, _ in record.headers]
    values = [header_text(name, value) for name, value in record.headers]
    for text in (record.topic, record.key, record.value, *names, *values):
        if isinstance(text, str):
            text.encode()  # raises for half of a surrogate pair
    if problem := idiom.refusal(record):
        raise ValueError(problem)
    headers = (idiom.header_parameter(names), idiom.header_parameter(values))
    row = (record.topic, record.key, idiom.value_parameter(record.value), *headers)
    return dict(zip(COLUMNS[1:], row, strict=True))


def _row(idiom: Idiom, constant: Mapping[str, object], record: Record) -> Mapping[str, object]:
    return {**bound(idiom, record), **constant}
