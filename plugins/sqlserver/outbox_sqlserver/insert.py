"""How the stasher writes into an outbox in SQL Server."""

from __future__ import annotations

from collections.abc import Mapping

from outbox_sdk.dialect import Insert
from outbox_sdk.portable import portable_insert
from outbox_sdk.record import Record

from outbox_sqlserver.idiom import SqlServerIdiom, octets

_insert = portable_insert(SqlServerIdiom())


def sqlserver_insert(table: str) -> Insert:
    """Returns how to write into the table of the given name."""
    made = _insert(table)

    def bind(record: Record) -> Mapping[str, object]:
        values = made.bind(record)
        return {**values, "kafka_value": octets(values["kafka_value"])}

    return Insert(sql=made.sql, bind=bind)
