"""Brings the tables of an earlier version up to this one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from outbox_sdk.errors import AccessDenied, DriverError
from outbox_sdk.portable.columns import ADDED_FENCE_COLUMNS, JOURNAL_COLUMNS, JOURNAL_INDEX, schema_name
from outbox_sdk.portable.described import Described
from outbox_sdk.portable.idiom import Idiom
from outbox_sdk.portable.indexes import find_index
from outbox_sdk.portable.names import TableName
from outbox_sdk.portable.schema_row import note_schema, read_schema
from outbox_sdk.portable.session import Session
from outbox_sdk.schema import SCHEMA, WITH_JOURNAL

Together = Sequence[str]
"""The statements of one transaction."""


def additions(idiom: Idiom, fence: TableName, found: Collection[str]) -> list[str]:
    """Returns the statements that add the missing columns to a fence of an earlier version."""
    missing = [column for column in ADDED_FENCE_COLUMNS if column not in found]
    return [
        f"ALTER TABLE {idiom.quote_table(fence)} ADD {column} {idiom.short_text_type}" for column in missing
    ]


def migrations(dialect: Described, session: Session, command: str = "outbox migrate") -> list[Together]:
    """Returns the statements that bring existing tables up to ``SCHEMA``, of which the last notes it.

    Args:
        dialect: Whose tables.
        session: The connection.
        command: Who notes it.
    """
    fence, outbox = dialect.options.fence, dialect.canonical_name(session)
    found = read_schema(session, fence, outbox)
    if found and found.version > SCHEMA:
        return []  # they have all that this version needs, and more
    together: list[Together] = [[statement] for statement in dialect.alterations(session)]
    together += _journal(dialect, session, due=found is None or found.version < WITH_JOURNAL)
    if found is None or found.version < SCHEMA:
        name = session.idiom.literal(schema_name(str(outbox)))
        together.append([note_schema(session.idiom, fence, name, command, found)])
    return together


def _journal(dialect: Described, session: Session, *, due: bool) -> list[Together]:
    """Returns the statements that create the journal, if it is due and not there, or the index that it lacks.

    Many databases commit each of them by itself, so that a process may have ended between the two. Some
    say that a table is not permitted where there is none.
    """
    journal = dialect.options.journal
    created, index = dialect.tables()[journal]
    found = None
    with suppress(AccessDenied):
        found = session.columns(session.idiom.quote_table(journal))
    if found is None:
        return [[created], [index]] if due else []
    if not set(JOURNAL_COLUMNS) <= set(found):
        return []  # which is not a journal, as who uses it is told
    lacking = session.idiom.indexes and not find_index(session, journal, JOURNAL_INDEX)
    return [[index]] if lacking else []


def migrate(dialect: Described, session: Session) -> list[str]:
    """Executes :func:`migrations` without a long wait for any lock, and returns what it executed.

    Raises:
        DriverError: As :func:`execute`.
    """
    if brief := session.idiom.brief_locks:
        with session.transaction("limit waits for locks", reads=True):
            session.execute_ddl(brief)
    return execute(session, lambda: migrations(dialect, session), "outbox migrate")


def execute(session: Session, outdated: Callable[[], Sequence[Together]], command: str) -> list[str]:
    """Executes statements that change existing tables. Several processes may do so at once.

    Args:
        session: The connection.
        outdated: Returns the statements; none once any process has executed them.
        command: What to run again if a lock is not to be had.

    Returns:
        The statements that this process has executed.

    Raises:
        DriverError: A lock was not to be had (retryable). Or the user may not; the message then contains the
            statements for somebody who may.
    """
    done: list[str] = []
    for together in outdated():
        try:
            with session.transaction("change a table of an earlier version"):
                for statement in together:
                    session.execute_ddl(statement)
        except DriverError as error:
            left = outdated()
            if together not in left:
                continue  # another process was first
            if error.retryable:
                raise DriverError(f"{error}; run '{command}' again", retryable=True) from error
            kind = AccessDenied if isinstance(error, AccessDenied) else DriverError
            texts = "; ".join(each for transaction in left for each in transaction)
            message = f"{error}; let somebody who may run this: {texts}"
            raise kind(message, retryable=False) from error
        done += together
    return done
