"""Whether the tables of an outbox are there, and such that this version of outbox can work with them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from outbox_sdk.affinity import ColumnIs, Origin
from outbox_sdk.errors import DriverError
from outbox_sdk.portable.columns import (
    DEAD_LETTER_COLUMNS,
    FENCE_COLUMNS,
    LEASE_COLUMNS,
    MEMBER_COLUMNS,
    NOTE_COLUMNS,
    OUTBOX_COLUMNS,
)
from outbox_sdk.portable.described import Described
from outbox_sdk.portable.names import TableName
from outbox_sdk.portable.notes import read_schema
from outbox_sdk.portable.origin_columns import OriginColumns
from outbox_sdk.portable.session import Session
from outbox_sdk.portable.tables import Tables
from outbox_sdk.schema import refusal


class Ready(NamedTuple):
    """An outbox that this version can work with.

    Attributes:
        tables: Its tables.
        columns: The columns of the outbox itself, in lower case.
    """

    tables: Tables
    columns: Collection[str]


def require(dialect: Described, session: Session, eligible: Sequence[ColumnIs] = (), more: str = "") -> Ready:
    """Makes sure that the tables exist, have their columns, and are of no version that is too new.

    Args:
        dialect: Whose tables.
        session: The connection.
        eligible: The conditions for rows, which may ask for columns.
        more: A table beside those that every harvester needs, by its name in ``Tables``.

    Raises:
        DriverError: They are not as they must be; the message says what to run.
    """
    options = dialect.options
    names = dialect.names(session)
    found = require_tables(dialect, session, names, more)
    require_version(dialect, session, names)
    faults, wanted = list[str](), columns_of(names)
    for table, there in found.items():
        faults += missing_columns(table, wanted[table], there)
    outbox = found[names.outbox]
    if absent := missing_columns(options.outbox, _asked(eligible, options.origin), outbox):
        faults += [f"{absent[0]}; run 'outbox init', which adds what the affinity needs"]
    elif eligible and (origin := options.origin):
        columns = OriginColumns(dialect.idiom, options.outbox, origin)
        if origin.is_of_another(default := columns.default(session)):
            faults += ["; ".join(columns.wrong_default(default))]
    if faults:
        message = f"outbox {options.outbox} in {dialect.address} cannot be used: {'; '.join(faults)}"
        raise DriverError(message, retryable=False)
    return Ready(names, outbox)


def columns_of(tables: Tables) -> Mapping[TableName, Sequence[str]]:
    """Returns which columns each table must have."""
    return {
        tables.outbox: OUTBOX_COLUMNS,
        tables.fence: FENCE_COLUMNS,
        tables.notes: NOTE_COLUMNS,
        tables.lease: LEASE_COLUMNS,
        tables.members: MEMBER_COLUMNS,
        tables.dead_letters: DEAD_LETTER_COLUMNS,
    }


def harvested(tables: Tables) -> Mapping[TableName, tuple[str, str]]:
    """Returns the tables that every harvest needs: what each is called, and the option that names it."""
    return {
        tables.outbox: ("outbox table", "outboxTable"),
        tables.fence: ("fence table", "fenceTable"),
        tables.notes: ("table of notes", "fenceTable"),
        tables.dead_letters: ("dead-letter table", "deadLetterTable"),
    }


def require_tables(
    dialect: Described, session: Session, tables: Tables, more: str = ""
) -> Mapping[TableName, Collection[str]]:
    """Makes sure that the tables exist; returns their columns, in lower case.

    Raises:
        DriverError: A table is missing; the message says what to run.
    """
    found, wanted = dict[TableName, Collection[str]](), harvested(tables)
    for table in (*wanted, *([getattr(tables, more)] if more else [])):
        columns = session.columns(dialect.idiom.quote_table(table))
        if columns is None:
            kind, setting = wanted.get(table, ("table", "fenceTable"))
            cure = f"run 'outbox init', or correct {setting}"
            message = f"there is no {kind} '{table}' in {dialect.address}; {cure}"
            raise DriverError(message, retryable=False)
        found[table] = columns
    return found


def require_version(dialect: Described, session: Session, names: Tables) -> None:
    """Makes sure that existing tables are not too new.

    Raises:
        DriverError: They are.
    """
    if reason := refusal(read_schema(session, names)):
        message = f"outbox {names.outbox} in {dialect.address} cannot be used: {reason}"
        raise DriverError(message, retryable=False)


def missing_columns(table: TableName, wanted: Collection[str], found: Collection[str]) -> list[str]:
    """Returns a sentence that names the wanted columns that were not found; nothing where all were."""
    missing = sorted(set(wanted).difference(found))
    if not missing:
        return []
    return [f"table '{table}' lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}"]


def _asked(eligible: Sequence[ColumnIs], origin: Origin | None) -> set[str]:
    """Returns the columns that an affinity needs beside those of every outbox, in lower case."""
    aged = {each.since.lower() for each in eligible if each.older_than > 0}
    telling = {name.lower() for name in (origin.column, origin.arrival) if name} if origin else set()
    return telling | {each.column.lower() for each in eligible} | aged - set(OUTBOX_COLUMNS)
