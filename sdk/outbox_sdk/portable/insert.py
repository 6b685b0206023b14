"""How the stasher writes into a portable outbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from outbox_sdk.dialect import Insert
from outbox_sdk.portable.columns import COLUMNS
from outbox_sdk.portable.idiom import Idiom
from outbox_sdk.portable.names import TableName
from outbox_sdk.portable.rows import header_texts
from outbox_sdk.portable.statements import quoted, stash
from outbox_sdk.record import Record


def portable_insert(
    idiom: Idiom, table_name: Callable[[str], TableName] = TableName.parse
) -> Callable[[str], Insert]:
    """Returns the ``insert`` of a plugin's ``Driver``; it refuses the records that ``idiom`` refuses.

    Args:
        idiom: How the database writes SQL.
        table_name: Reads the name of a table.
    """

    def insert(table: str) -> Insert:
        sql = stash(idiom, quoted(idiom, table_name(table)), COLUMNS[1:])
        return Insert(sql=sql, bind=partial(bound, idiom))

    return insert


def bound(idiom: Idiom, record: Record) -> Mapping[str, object]:
    """Makes the parameters of a record.

    Raises:
        ValueError: The database cannot hold it.
    """
    headers = header_texts(record)
    for text in (record.topic, record.key, record.value, *headers):
        if isinstance(text, str):
            text.encode()  # raises for half of a surrogate pair
    if problem := idiom.refusal(record):
        raise ValueError(problem)
    values = (record.topic, record.key, idiom.value_parameter(record.value), *headers)
    return dict(zip(COLUMNS[1:], values, strict=True))
