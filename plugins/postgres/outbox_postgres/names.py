"""Names of tables and columns as PostgreSQL reads and writes them."""

from __future__ import annotations

import re
from typing import Self

from outbox_sdk.portable import TableName
from outbox_sdk.portable.names import not_a_name

_LONGEST_NAME = 63
"""Bytes of a name that the server keeps."""

_PART = re.compile(r'"((?:[^"]|"")+)"|([^\W\d][\w$]*)')
_NAME = re.compile(rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern}))?")


class QuotedName(TableName):
    """A table's name that prints as it stands in SQL, with each part in double quotes."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads ``table`` or ``schema.table`` as PostgreSQL does: unquoted parts fold to lower case.

        Raises:
            ConfigError: It is neither.
        """
        if not _NAME.fullmatch(text.strip()):
            raise not_a_name(text)
        parts = [
            quoted.replace('""', '"') if quoted else plain.lower() for quoted, plain in _PART.findall(text)
        ]
        return cls(parts[0] if len(parts) > 1 else "", parts[-1])

    def __str__(self) -> str:
        return ".".join(quoted(part) for part in self if part)


def quoted(name: str) -> str:
    """Writes the name of a column, a role or a part of a table's name as it stands in SQL."""
    return '"' + name.replace('"', '""') + '"'


def with_suffix(name: str, suffix: str) -> str:
    """Adds a suffix to a name, which is cut first, as the server would cut off the suffix."""
    return name.encode()[: _LONGEST_NAME - len(suffix)].decode(errors="ignore") + suffix


def is_cut(name: str, suffix: str) -> bool:
    """Returns whether :func:`with_suffix` cuts the name."""
    return len(name.encode()) + len(suffix) > _LONGEST_NAME
