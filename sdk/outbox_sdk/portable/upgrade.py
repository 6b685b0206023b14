"""What the tables of an earlier version lack, and how they get it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from outbox_sdk.errors import AccessDenied, DriverError
from outbox_sdk.portable.columns import ADDED_FENCE_COLUMNS
from outbox_sdk.portable.idiom import Idiom
from outbox_sdk.portable.names import TableName
from outbox_sdk.portable.session import Session


def additions(idiom: Idiom, fence: TableName, found: Collection[str]) -> list[str]:
    """Returns the statements that add to a fence what it lacks of the columns that came later."""
    missing = [column for column in ADDED_FENCE_COLUMNS if column not in found]
    return [
        f"ALTER TABLE {idiom.quote_table(fence)} ADD {column} {idiom.short_text_type}" for column in missing
    ]


def upgrade(session: Session, outdated: Callable[[], Sequence[str]]) -> None:
    """Executes what is to be done to tables of an earlier version. Several processes may do so at once.

    Args:
        session: The connection.
        outdated: Returns the statements; none once they were executed, by whomever.

    Raises:
        DriverError: The user may not; the message has the statements for whoever may.
    """
    for statement in outdated():
        try:
            with session.transaction("change a table of an earlier version"):
                session.execute_ddl(statement)
        except DriverError as error:
            left = outdated()
            if statement not in left:
                continue  # another process was first
            if error.retryable:
                raise
            kind = AccessDenied if isinstance(error, AccessDenied) else DriverError
            message = f"{error}; let somebody who may run this: {'; '.join(left)}"
            raise kind(message, retryable=False) from error
