"""Finds the outboxes of a database by a pattern of their names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from outbox_sdk.errors import ConfigError
from outbox_sdk.portable.idiom import Idiom
from outbox_sdk.portable.names import TableName

TELLING_COLUMNS = ("kafka_topic", "kafka_key", "leader_id")
"""The columns by which a table is taken for an outbox."""

_STANDS_FOR_ANY = "\u01c0"
"""A letter that has no other case: with it for each asterisk, a pattern is read as a name is."""


class TablePattern:
    """A pattern of tables' names: ``schema.table`` or ``table``, with ``*`` for any characters.

    Args:
        text: The pattern; its parts are quoted as those of names are.
        read: Reads a table's name as the database does.
        plain: Removes the quotes that ``read`` leaves on a part.
        flags: How to compare, for ``re``.

    Attributes:
        schema: The pattern of the schema; empty if it names none.

    Raises:
        ConfigError: It is malformed.
    """

    def __init__(
        self,
        text: str,
        read: Callable[[str], TableName] = TableName.parse,
        plain: Callable[[str], str] = str,
        *,
        flags: re.RegexFlag = re.IGNORECASE,
    ) -> None:
        try:
            name = read(text.replace("*", _STANDS_FOR_ANY))
        except ConfigError:
            raise ConfigError(
                f"'{text}' is no pattern of tables: write table or schema.table, with * for any characters; "
                'put a part that holds anything but letters, digits, _ and * in double quotes, "like-*"'
            ) from None
        self.schema, self._table = name.schema and plain(name.schema), plain(name.table)
        self._read = read
        self._flags = flags

    def names(self, found: Iterable[tuple[str, str]]) -> list[str]:
        """Returns those of ``found``, schemas and tables, that match: sorted, as the option ``table`` is
        written, and with the schema if the pattern has one.
        """
        return sorted(
            ".".join(self._written(part) for part in ((schema, table) if self.schema else (table,)))
            for schema, table in found
            if self._matches(self._table, table) and (not self.schema or self._matches(self.schema, schema))
        )

    def _matches(self, pattern: str, name: str) -> bool:
        wanted = ".*".join(map(re.escape, pattern.split(_STANDS_FOR_ANY)))
        return re.fullmatch(wanted, name, self._flags | re.DOTALL) is not None

    def _written(self, part: str) -> str:
        """Writes a part of a name: in double quotes, unless it is read as it is."""
        try:
            if self._read(part) == TableName("", part):
                return part
        except ConfigError:
            pass
        return '"' + part.replace('"', '""') + '"'


def find_outboxes(idiom: Idiom, *, everywhere: bool) -> str:
    """Writes the query for schema and name of all tables that have the columns of an outbox.

    Args:
        idiom: How the database writes SQL.
        everywhere: Whether to look in all schemas, not only in that of the connection.
    """
    telling = ", ".join(f"'{column}'" for column in TELLING_COLUMNS)
    here = "" if everywhere else f" AND schema_name = {idiom.current_schema}"
    return (
        f"SELECT schema_name, table_name FROM ({idiom.catalogue}) found"  # noqa: S608 - of our own parts
        f" WHERE LOWER(column_name) IN ({telling}){here}"
        f" GROUP BY schema_name, table_name HAVING COUNT(*) = {len(TELLING_COLUMNS)}"
    )
