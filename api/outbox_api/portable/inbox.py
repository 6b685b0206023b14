"""The table of inboxes, and the statements for it, in the words of an idiom."""
# ruff: noqa: S608 - the name comes quoted from the idiom, and every value is a parameter

from __future__ import annotations

from outbox_api.portable.idiom import Idiom
from outbox_api.portable.sources import quoted
from outbox_api.portable.table_idiom import TableName
from outbox_api.portable.tables import created

LENGTHS = {"consumer": 100, "record_id": 300}
"""How many characters of ASCII the columns hold: SQL Server permits 900 bytes of UTF-16 in a key."""


class InboxStatements:
    """The statements for one table.

    Attributes:
        first: Notes ``{record_id}`` for ``{consumer}``, and touches no row if it is noted already.
        forget: Deletes those of the ``{limit}`` oldest notes of ``{consumer}`` that are older than
            ``{seconds}``. However many notes there are, it reads no others.
        ddl: Creates the table.
    """

    def __init__(self, idiom: Idiom, table: TableName) -> None:
        name = quoted(idiom, table)
        self.first = _insert(idiom, name)
        noted = f"SELECT record_id, noted_at FROM {name} WHERE consumer = {{consumer}} ORDER BY noted_at"
        oldest = idiom.limit(noted, "{limit}")
        old = f"SELECT record_id FROM ({oldest}) oldest WHERE {idiom.older_than('noted_at')}"
        self.forget = idiom.delete_listed(name, "consumer", "record_id", old)
        columns = {column: f"{{text[{length}]}} NOT NULL" for column, length in LENGTHS.items()}
        columns["noted_at"] = f"{idiom.moment_type} DEFAULT ({{now}}) NOT NULL"
        index = idiom.create_index(table, ("consumer", "noted_at"))
        self.ddl = (created(idiom, table, columns, ", ".join(LENGTHS)), index)


def _insert(idiom: Idiom, name: str) -> str:
    columns, values = "consumer, record_id", "{consumer}, {record_id}"
    verb, end = idiom.insert_new
    if verb:
        return f"{verb} INTO {name} ({columns}) VALUES ({values}){end}"
    # If another transaction is faster, the key makes this fail.
    there = (
        f"SELECT COUNT(*) AS present FROM {name} WHERE consumer = {{consumer}} AND record_id = {{record_id}}"
    )
    return f"INSERT INTO {name} ({columns}) SELECT {values} FROM ({there}) found WHERE present = 0"
