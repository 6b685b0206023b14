"""Creates the tables of an outbox."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from outbox_sdk.errors import AccessDenied, DriverError
from outbox_sdk.portable.described import Described
from outbox_sdk.portable.migration import execute, migrations
from outbox_sdk.portable.names import TableName
from outbox_sdk.portable.notes import note_schema
from outbox_sdk.portable.readiness import require_version
from outbox_sdk.portable.session import Session

_COMMAND = "outbox init"


def first_note(dialect: Described) -> str:
    """Returns the statement that notes the version of tables that have just been created."""
    options = dialect.options
    name = dialect.idiom.known_as(options.outbox)
    return note_schema(dialect.idiom, options.tables.notes, name, _COMMAND, anew=True)


def create(dialect: Described, session: Session) -> list[str]:
    """Creates what does not exist, adds what an origin needs, and notes the version of the tables.

    The version is noted once there is nothing to migrate.

    Returns:
        The names of the tables created.

    Raises:
        DriverError: The user may not; the message contains the statements for somebody who may. Or there are
            tables that are too new.
    """
    names = dialect.names(session)
    tables = zip(dialect.options.tables, dialect.tables(names).items(), strict=True)
    with suppress(AccessDenied):  # what follows says what to run
        if session.columns(session.idiom.quote_table(names.notes)) is not None:
            require_version(dialect, session, names)
    created = [
        ".".join(part for part in configured if part)
        for configured, (table, statements) in tables
        if _create_table(session, table, statements, optional=table == names.journal)
    ]
    execute(session, lambda: dialect.additions(session), _COMMAND)
    if not dialect.alterations(session):
        execute(session, lambda: migrations(dialect, session, _COMMAND), _COMMAND)
    return created


def _is_there(session: Session, table: TableName, *, optional: bool) -> bool:
    """Returns whether a table exists; harvesters, who need no right to the journal, need not see it."""
    try:
        return session.columns(session.idiom.quote_table(table)) is not None
    except AccessDenied:
        if not optional:
            raise
        return True


def _create_table(session: Session, table: TableName, statements: Sequence[str], *, optional: bool) -> bool:
    """Creates a table that does not exist; returns whether it did."""
    if _is_there(session, table, optional=optional):
        return False
    try:
        with session.transaction(f"create table {table}"):
            for statement in statements:
                session.execute_ddl(statement)
    except AccessDenied as error:
        ddl = "; ".join(statements)
        raise AccessDenied(f"{error}; let somebody who may run this: {ddl}") from error
    except DriverError:
        if session.columns(session.idiom.quote_table(table)) is not None:
            return False  # another process was first
        raise
    return True
