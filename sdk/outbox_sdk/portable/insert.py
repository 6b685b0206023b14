"""How the stasher writes into a portable outbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from outbox_sdk.dialect import Insert
from outbox_sdk.portable.idiom import Idiom
from outbox_sdk.portable.names import TableName
from outbox_sdk.portable.rows import COLUMNS, header_texts
from outbox_sdk.portable.statements import quoted, stash
from outbox_sdk.record import Record


def portable_insert(
    idiom: Idiom, refuse: Callable[[Record], str] = lambda _record: ""
) -> Callable[[str], Insert]:
    """Returns what a plugin's ``Driver`` offers as ``insert``.

    Args:
        idiom: How the database writes SQL.
        refuse: Says why the database cannot hold a record, or nothing.
    """

    def bind(record: Record) -> Mapping[str, object]:
        names, values = header_texts(record)
        for text in (record.topic, record.key, record.value, names, values):
            if isinstance(text, str):
                text.encode()  # raises for half of a surrogate pair
        if problem := refuse(record):
            raise ValueError(problem)
        return dict(zip(COLUMNS[1:], (record.topic, record.key, record.value, names, values), strict=True))

    def insert(table: str) -> Insert:
        return Insert(sql=stash(idiom, quoted(idiom, TableName.parse(table)), COLUMNS[1:]), bind=bind)

    return insert
