"""How the stasher writes into an outbox in Oracle."""

from __future__ import annotations

from collections.abc import Mapping

from outbox_sdk.dialect import Insert
from outbox_sdk.portable import portable_insert
from outbox_sdk.record import Record

from outbox_oracle.idiom import OracleIdiom, kept
from outbox_oracle.names import table_name

_IDIOM = OracleIdiom()
_PLAIN = portable_insert(_IDIOM)("outbox")


def oracle_insert(table: str) -> Insert:
    """Returns how to write into the table of the given name."""
    name = _IDIOM.table(table_name(table)).replace("{", "{{").replace("}", "}}")

    def bind(record: Record) -> Mapping[str, object]:
        values = _PLAIN.bind(record)
        return {**values, "kafka_value": kept(values["kafka_value"])}

    return Insert(sql=_PLAIN.sql.replace('"OUTBOX"', name, 1), bind=bind)
