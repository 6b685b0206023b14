"""Whether the tables of an outbox are there, and such that this version of outbox can work with them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from outbox_sdk.affinity import ColumnIs, Condition, Origin
from outbox_sdk.errors import DriverError
from outbox_sdk.portable.columns import (
    ADDED_FENCE_COLUMNS,
    DEAD_LETTER_COLUMNS,
    FENCE_COLUMNS,
    OUTBOX_COLUMNS,
)
from outbox_sdk.portable.described import Described
from outbox_sdk.portable.names import TableName
from outbox_sdk.portable.origin_columns import OriginColumns
from outbox_sdk.portable.schema_row import read_schema
from outbox_sdk.portable.session import Session
from outbox_sdk.schema import refusal


class Ready(NamedTuple):
    """An outbox that this version can work with.

    Attributes:
        name: Its name as the database knows it.
        columns: Its columns, in lower case.
    """

    name: TableName
    columns: Collection[str]


def require(dialect: Described, session: Session, eligible: Sequence[Condition] = ()) -> Ready:
    """Makes sure that the tables exist, have their columns, and are of no version that is too new.

    Args:
        dialect: Whose tables.
        session: The connection.
        eligible: The conditions for rows, which may ask for columns.

    Raises:
        DriverError: They are not as they must be; the message says what to run.
    """
    options = dialect.options
    found = require_tables(dialect, session)
    name = require_version(dialect, session)
    faults = missing_columns(options.outbox, OUTBOX_COLUMNS, found[options.outbox])
    if absent := missing_columns(options.outbox, _asked(eligible, options.origin), found[options.outbox]):
        faults += [f"{absent[0]}; run 'outbox init', which adds what the affinity needs"]
    elif eligible and (origin := options.origin):
        columns = OriginColumns(dialect.idiom, options.outbox, origin)
        if origin.is_of_another(default := columns.default(session)):
            faults += ["; ".join(columns.wrong_default(default))]
    fence = set(FENCE_COLUMNS).difference(ADDED_FENCE_COLUMNS)
    faults += missing_columns(options.fence, fence, found[options.fence])
    faults += missing_columns(options.dead_letters, DEAD_LETTER_COLUMNS, found[options.dead_letters])
    if former := missing_columns(options.fence, ADDED_FENCE_COLUMNS, found[options.fence]):
        faults += [f"{former[0]}, since an earlier version made it; run 'outbox migrate'"]
    if faults:
        message = f"outbox {options.outbox} in {dialect.address} cannot be used: {'; '.join(faults)}"
        raise DriverError(message, retryable=False)
    return Ready(name, found[options.outbox])


def require_tables(dialect: Described, session: Session) -> Mapping[TableName, Collection[str]]:
    """Makes sure that the tables exist; returns their columns, in lower case.

    Raises:
        DriverError: A table is missing; the message says what to run.
    """
    options, found = dialect.options, dict[TableName, Collection[str]]()
    settings = ("outboxTable", "fenceTable", "deadLetterTable")
    tables = (options.outbox, options.fence, options.dead_letters)
    for table, kind, setting in zip(tables, ("", "fence ", "dead-letter "), settings, strict=True):
        columns = session.columns(dialect.idiom.quote_table(table))
        if columns is None:
            cure = f"run 'outbox init', or correct {setting}"
            message = f"there is no {kind}table '{table}' in {dialect.address}; {cure}"
            raise DriverError(message, retryable=False)
        found[table] = columns
    return found


def require_version(dialect: Described, session: Session) -> TableName:
    """Makes sure that existing tables are not too new; returns the outbox's name as the database knows it.

    Raises:
        DriverError: They are.
    """
    name = dialect.canonical_name(session)
    if reason := refusal(read_schema(session, dialect.options.fence, name)):
        message = f"outbox {name} in {dialect.address} cannot be used: {reason}"
        raise DriverError(message, retryable=False)
    return name


def missing_columns(table: TableName, wanted: Collection[str], found: Collection[str]) -> list[str]:
    """Returns a sentence that names the wanted columns that were not found; nothing where all were."""
    missing = sorted(set(wanted).difference(found))
    if not missing:
        return []
    return [f"table '{table}' lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}"]


def _asked(eligible: Sequence[Condition], origin: Origin | None) -> set[str]:
    """Returns the columns that an affinity needs beside those of every outbox, in lower case."""
    compared = [each for each in eligible if isinstance(each, ColumnIs)]
    aged = {each.since.lower() for each in compared if each.older_than > 0}
    telling = {name.lower() for name in (origin.column, origin.arrival) if name} if origin else set()
    return telling | {each.column.lower() for each in compared} | aged - set(OUTBOX_COLUMNS)
