"""Creates the tables of an outbox."""

from __future__ import annotations

from collections.abc import Sequence

from outbox_sdk.errors import AccessDenied, DriverError
from outbox_sdk.portable.columns import schema_name
from outbox_sdk.portable.described import Described
from outbox_sdk.portable.intake import extra_columns
from outbox_sdk.portable.journal import lacks_journal
from outbox_sdk.portable.migration import execute, migrations
from outbox_sdk.portable.names import TableName
from outbox_sdk.portable.readiness import require_version
from outbox_sdk.portable.schema_row import note_schema
from outbox_sdk.portable.session import Session

_COMMAND = "outbox init"


def table_statements(dialect: Described, table: TableName) -> Sequence[str]:
    """Returns the statements that create a table of the outbox, with all that the options ask for."""
    options = dialect.options
    wanted = options.intake and (options.intake.partition or options.intake.timestamp)
    added = extra_columns(dialect.idiom.quote_table(table)) if wanted else []
    if origin := dialect.origin_columns():
        added += origin.created()
    return [*dialect.tables()[table], *(added if table == options.outbox else [])]


def note_name(dialect: Described) -> str:
    """Writes the name of the fence's row that notes the version, for somebody who is not connected yet."""
    return dialect.idiom.known_as(dialect.options.outbox, schema_name(""))


def first_note(dialect: Described) -> str:
    """Returns the statement that notes the version of tables that have just been created."""
    return note_schema(dialect.idiom, dialect.options.fence, note_name(dialect), _COMMAND, None)


def create(dialect: Described, session: Session) -> list[str]:
    """Creates what does not exist, adds what an origin needs, and notes the version of the tables.

    The version is noted once there is nothing to migrate.

    Returns:
        The names of the tables created.

    Raises:
        DriverError: The user may not; the message contains the statements for somebody who may. Or there are
            tables that are too new.
    """
    tables = dialect.tables()
    if session.columns(session.idiom.quote_table(dialect.options.fence)) is not None:
        require_version(dialect, session)
    created = [str(table) for table in tables if _create_table(dialect, session, table)]
    if columns := dialect.origin_columns():
        execute(session, lambda: columns.missing(session), _COMMAND)
    if not dialect.alterations(session):
        execute(session, lambda: migrations(dialect, session, _COMMAND), _COMMAND)
    return created


def _is_there(dialect: Described, session: Session, table: TableName) -> bool:
    """Returns whether a table exists; harvesters, who need no right to the journal, need not see it."""
    try:
        return session.columns(session.idiom.quote_table(table)) is not None
    except AccessDenied:
        if table != dialect.options.journal or lacks_journal(dialect, session):
            raise
        return True


def _create_table(dialect: Described, session: Session, table: TableName) -> bool:
    """Creates a table that does not exist; returns whether it did."""
    name = session.idiom.quote_table(table)
    if _is_there(dialect, session, table):
        return False
    statements = table_statements(dialect, table)
    try:
        with session.transaction(f"create table {table}"):
            for statement in statements:
                session.execute_ddl(statement)
    except AccessDenied as error:
        ddl = "; ".join(statements)
        raise AccessDenied(f"{error}; let somebody who may run this: {ddl}") from error
    except DriverError:
        if session.columns(name) is not None:
            return False  # another process was first
        raise
    return True
