"""Databases without an encoding (``SQL_ASCII``), where a text may contain any bytes.

If a client has an encoding, the server refuses to send bytes that are invalid in it, and the mark fails.
This module therefore reads bytes. Valid UTF-8 becomes text, anything else stays bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psycopg
from outbox_sdk.portable.rows import spellings, storable
from psycopg import pq
from psycopg.adapt import Buffer, Loader
from psycopg.types.string import StrDumper

_TEXTS = ("text", "varchar", "bpchar", "name")


class Spelling(str):
    """A text as the database has it, with a lone surrogate for each byte that is not UTF-8."""

    __slots__ = ()


class _SpellingDumper(StrDumper):
    # In the format that psycopg uses in arrays of texts.
    def dump(self, obj: str) -> Buffer:
        return obj.encode(errors="surrogateescape")


class _Text(Loader):
    def load(self, data: Buffer) -> str | bytes:
        octets = bytes(data)
        try:
            return octets.decode()
        except UnicodeDecodeError:
            return octets


class _BinaryText(_Text):
    format = pq.Format.BINARY


class _Cursor(psycopg.RawCursor[Any]):
    """Sends statements as UTF-8, as names of tables may need it."""

    def execute(self, query: Any, *arguments: Any, **how: Any) -> _Cursor:
        super().execute(query.encode() if isinstance(query, str) else query, *arguments, **how)
        return self


def is_raw(connection: psycopg.Connection[Any]) -> bool:
    """Returns whether the database has no encoding."""
    return connection.info.parameter_status("server_encoding") == "SQL_ASCII"


def stored(connection: psycopg.Connection[Any], text: str) -> str:
    """Writes what the database of a connection cannot hold of a text as escapes."""
    unicode = connection.info.parameter_status("server_encoding") == "UTF8"
    return storable(text, "utf-8" if unicode else "ascii")


def read_raw(connection: psycopg.Connection[Any]) -> None:
    """Makes a connection return texts that are not UTF-8 as bytes."""
    connection.execute("SET client_encoding TO 'SQL_ASCII'")
    connection.cursor_factory = _Cursor
    for name in _TEXTS:
        connection.adapters.register_loader(name, _Text)
        connection.adapters.register_loader(name, _BinaryText)
    connection.adapters.register_dumper(Spelling, _SpellingDumper)


def readable(text: str | bytes) -> str:
    """Returns a text for people, with escapes for bytes that are not UTF-8."""
    return text if isinstance(text, str) else text.decode(errors="backslashreplace")


def spelled(keys: Iterable[str], *, raw: bool) -> list[str]:
    """Returns keys as statements compare them; in a raw database :func:`readable` may have made them."""
    if not raw:
        return list(keys)
    return [
        Spelling(octets.decode(errors="surrogateescape")) for key in keys for octets in sorted(spellings(key))
    ]
