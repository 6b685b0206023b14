"""How the stasher writes into an outbox in Oracle."""

from __future__ import annotations

from collections.abc import Mapping

from outbox_sdk.dialect import Insert
from outbox_sdk.portable import portable_insert
from outbox_sdk.record import Record

from outbox_oracle.idiom import EMPTY, OracleIdiom, kept
from outbox_oracle.names import table_name

KEY_BYTES = 4_000
"""What a VARCHAR2 holds, whatever the database's settings."""


def refuse(record: Record) -> str:
    """Says why the database cannot hold a record, or nothing."""
    if len(record.key.encode(errors="replace")) > KEY_BYTES:
        return f"the key is longer than {KEY_BYTES} bytes"
    if record.value in (EMPTY, EMPTY.encode()):
        return f"the value is {EMPTY!r}, which stands for an empty one in Oracle's tables"
    return ""


_IDIOM = OracleIdiom()
_PLAIN = portable_insert(_IDIOM, refuse)("outbox")


def oracle_insert(table: str) -> Insert:
    """Returns how to write into the table of the given name."""
    name = _IDIOM.table(table_name(table)).replace("{", "{{").replace("}", "}}")

    def bind(record: Record) -> Mapping[str, object]:
        values = _PLAIN.bind(record)
        return {**values, "kafka_value": kept(values["kafka_value"])}

    return Insert(sql=_PLAIN.sql.replace('"OUTBOX"', name, 1), bind=bind)
