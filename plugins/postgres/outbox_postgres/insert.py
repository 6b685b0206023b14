"""How the stasher writes into a PostgreSQL outbox."""

from __future__ import annotations

from collections.abc import Mapping

from outbox_api import Insert, Record
from outbox_api.portable.rows import header_text
from outbox_api.portable.sources import COLUMNS

from outbox_postgres.options import QuotedName, quoted

_COLUMNS = COLUMNS[1:]


def insert(table: str, constants: Mapping[str, object] | None = None) -> Insert:
    """Returns the statement that stashes one record into ``table``, with or without a schema.

    The creation time is the statement's, not the transaction's, so that an age is never older than the
    wait in the outbox.

    Args:
        table: The table.
        constants: Column → value that each row gets besides those of its record.

    Raises:
        ConfigError: ``table`` is not a table name.
    """
    given = {f"constant_{number}": value for number, value in enumerate((constants or {}).values())}
    columns = f"create_time, {', '.join(_COLUMNS)}"
    values = f"pg_catalog.clock_timestamp(), {', '.join(f'{{{name}}}' for name in _COLUMNS)}"
    columns += "".join(f", {_escaped(quoted(column))}" for column in constants or ())
    values += "".join(f", {{{name}}}" for name in given)
    name = _escaped(str(QuotedName.parse(table)))
    # The names are quoted, the rest is constant.
    sql = f"INSERT INTO {name} ({columns}) VALUES ({values})"  # noqa: S608 - quoted
    return Insert(sql=sql, bind=(lambda record: {**bind(record), **given}) if given else bind)


def _escaped(name: str) -> str:
    return name.replace("{", "{{").replace("}", "}}")


def bind(record: Record) -> Mapping[str, object]:
    """Makes the parameters of a record.

    Raises:
        ValueError: PostgreSQL cannot hold it.
    """
    names = [name for name, _ in record.headers]
    values = [header_text(name, value) for name, value in record.headers]
    for text in (record.topic, record.key, record.value, *names, *values):
        if not isinstance(text, str):
            continue
        if "\0" in text:
            raise ValueError(
                "PostgreSQL's text types hold no NUL character; stash the value as bytes into a bytea column"
            )
        text.encode()  # raises for half of a surrogate pair
    return dict(zip(_COLUMNS, (record.topic, record.key, record.value, names, values), strict=True))
