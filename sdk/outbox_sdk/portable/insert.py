"""How the stasher writes into a portable outbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from outbox_sdk.dialect import Insert
from outbox_sdk.portable.columns import COLUMNS
from outbox_sdk.portable.idiom import Idiom
from outbox_sdk.portable.names import TableName
from outbox_sdk.portable.rows import header_texts
from outbox_sdk.portable.sources import quoted
from outbox_sdk.portable.statements import stash
from outbox_sdk.record import Record


def portable_insert(
    idiom: Idiom, table_name: Callable[[str], TableName] = TableName.parse
) -> Callable[[str, Mapping[str, object]], Insert]:
    """Returns the ``insert`` of a plugin's ``Driver``; it refuses the records that ``idiom`` refuses.

    Args:
        idiom: How the database writes SQL.
        table_name: Reads the name of a table.
    """

    def insert(table: str, constants: Mapping[str, object]) -> Insert:
        # They are parameters, too: some drivers send many rows in one INSERT, which takes nothing else.
        constant = {f"constant{number}": value for number, value in enumerate(constants.values())}
        columns = {column: column for column in COLUMNS[1:]}
        columns |= {quoted(idiom, TableName("", name)): place
                    for name, place in zip(constants, constant, strict=True)}  # fmt: skip
        sql = stash(idiom, quoted(idiom, table_name(table)), columns)
        return Insert(sql=sql, bind=partial(_row, idiom, constant) if constant else partial(bound, idiom))

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


def _row(idiom: Idiom, constant: Mapping[str, object], record: Record) -> Mapping[str, object]:
    return {**bound(idiom, record), **constant}
