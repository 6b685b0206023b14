"""How the stasher writes into an outbox in SQL Server."""

from __future__ import annotations

from collections.abc import Mapping

from outbox_sdk.dialect import Insert
from outbox_sdk.portable import portable_insert
from outbox_sdk.record import Record

from outbox_sqlserver.ddl import KEY_LENGTH
from outbox_sqlserver.idiom import SqlServerIdiom, octets


def refuse(record: Record) -> str:
    """Says why the database cannot hold a record, or nothing."""
    for name, text, limit in (("key", record.key, KEY_LENGTH), ("topic", record.topic, 249)):
        if len(text.encode("utf-16-le", "replace")) > 2 * limit:
            return f"the {name} is longer than {limit:,} UTF-16 code units"
    return ""


_insert = portable_insert(SqlServerIdiom(), refuse)


def sqlserver_insert(table: str) -> Insert:
    """Returns how to write into the table of the given name."""
    made = _insert(table)

    def bind(record: Record) -> Mapping[str, object]:
        values = made.bind(record)
        return {**values, "kafka_value": octets(values["kafka_value"])}

    return Insert(sql=made.sql, bind=bind)
