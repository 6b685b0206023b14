"""What a fence that an earlier version made lacks, and how it is added."""

from __future__ import annotations

from collections.abc import Collection

from outbox_sdk.errors import AccessDenied, DriverError
from outbox_sdk.portable.idiom import Idiom
from outbox_sdk.portable.names import TableName
from outbox_sdk.portable.session import Session
from outbox_sdk.portable.statements import NOTED


def additions(idiom: Idiom, fence: TableName, found: Collection[str]) -> list[str]:
    """Returns the statements that add to a fence what it lacks of the columns that came later."""
    missing = [column for column in NOTED if column not in found]
    return [f"ALTER TABLE {idiom.table(fence)} ADD {column} {idiom.line}" for column in missing]


def upgrade(session: Session, fence: TableName) -> None:
    """Adds to a fence what it lacks of the columns that came later. Several processes may do so at once.

    Raises:
        DriverError: The user may not; the message has the statements for whoever may.
    """
    for statement in _lacking(session, fence):
        try:
            with session.transaction(f"add a column to table {fence}"):
                session.define(statement)
        except DriverError as error:
            lacking = _lacking(session, fence)
            if statement not in lacking:
                continue  # another process was first
            if error.retryable:
                raise
            kind = AccessDenied if isinstance(error, AccessDenied) else DriverError
            message = f"{error}; let somebody who may run this: {'; '.join(lacking)}"
            raise kind(message, retryable=False) from error


def _lacking(session: Session, fence: TableName) -> list[str]:
    return additions(session.idiom, fence, session.columns(session.idiom.table(fence)) or ())
