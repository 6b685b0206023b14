"""Names of tables as users write them."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import NamedTuple, Self

from outbox_sdk.errors import ConfigError

_PART = r'"(?:[^"]|"")+"|`(?:[^`]|``)+`|\[[^\]]+\]|[^\W\d][\w$#]*'
_DIGITS = 16
_NAME = re.compile(rf"(?:({_PART})\.)?({_PART})")


class TableName(NamedTuple):
    """A table as the user names it.

    Attributes:
        schema: The schema, or empty for the one that the connection is in.
        table: The table's own name.
    """

    schema: str
    table: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads ``table`` or ``schema.table``; a part may stand in double quotes, backticks or brackets.

        Raises:
            ConfigError: It is neither.
        """
        found = _NAME.fullmatch(text.strip())
        if not found:
            raise not_a_name(text)
        return cls(_plain(found[1] or ""), _plain(found[2]))

    def within(self, schema: str) -> Self:
        """Returns the name in ``schema``, unless it names a schema of its own."""
        return self if self.schema else type(self)(schema, self.table)

    def suffixed(self, suffix: str) -> Self:
        """Returns the name of a table beside this one: its own with a suffix, within its quotes if any."""
        bare = self.table.removesuffix('"')
        return type(self)(self.schema, f"{bare}{suffix}{self.table[len(bare) :]}")

    def __str__(self) -> str:
        return ".".join(part for part in self if part)


def not_a_name(text: str) -> ConfigError:
    """Returns the error for a text that does not name a table."""
    return ConfigError(
        f"'{text}' is not a table name: write table or schema.table; "
        'put a part that holds anything but letters, digits and _ in double quotes, "like-this"'
    )


def bounded(name: str, length: int) -> str:
    """Returns a name of at most ``length`` characters: a longer one is cut, and ends with its digest."""
    if len(name) <= length:
        return name
    return f"{name[: length - _DIGITS]}{sha256(name.encode()).hexdigest()[:_DIGITS]}"


def _plain(part: str) -> str:
    mark = part[:1]
    if mark == "[":
        return part[1:-1]
    return part[1:-1].replace(mark * 2, mark) if mark in ('"', "`") else part
