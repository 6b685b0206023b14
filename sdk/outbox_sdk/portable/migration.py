"""Brings the tables of an earlier version up to this one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from outbox_sdk.errors import AccessDenied, DriverError
from outbox_sdk.portable.described import Described
from outbox_sdk.portable.notes import note_schema, schema_query
from outbox_sdk.portable.session import Session
from outbox_sdk.schema import SCHEMA

Together = Sequence[str]
"""The statements of one transaction."""


def migrations(dialect: Described, session: Session, command: str = "outbox migrate") -> list[Together]:
    """Returns the statements that bring existing tables up to ``SCHEMA``, of which the last notes it.

    Args:
        dialect: Whose tables.
        session: The connection.
        command: Who notes it.
    """
    names = dialect.names(session)
    query = schema_query(session.idiom, names.notes)
    rows = session.query("read the version", query, name=str(names.outbox))
    version = rows[0][0] if rows else None
    if version is not None and int(version) > SCHEMA:
        return []  # they have all that this version needs, and more
    together: list[Together] = [[statement] for statement in dialect.alterations(session)]
    if version is None or int(version) < SCHEMA:
        name = session.idiom.literal(str(names.outbox))
        together.append([note_schema(session.idiom, names.notes, name, command, anew=not rows)])
    return together


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
