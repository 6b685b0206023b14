"""Adds columns that the tables of an earlier version lack."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from outbox_sdk.errors import AccessDenied, DriverError
from outbox_sdk.portable.columns import ADDED_FENCE_COLUMNS
from outbox_sdk.portable.idiom import Idiom
from outbox_sdk.portable.names import TableName
from outbox_sdk.portable.session import Session


def additions(idiom: Idiom, fence: TableName, found: Collection[str]) -> list[str]:
    """Returns the statements that add the missing columns to a fence of an earlier version."""
    missing = [column for column in ADDED_FENCE_COLUMNS if column not in found]
    return [
        f"ALTER TABLE {idiom.quote_table(fence)} ADD {column} {idiom.short_text_type}" for column in missing
    ]


def upgrade(session: Session, outdated: Callable[[], Sequence[Sequence[str]]]) -> None:
    """Executes the statements that upgrade tables of an earlier version. Several processes may do so at once.

    Args:
        session: The connection.
        outdated: Returns the statements, those of one transaction together; none once any process has
            executed them.

    Raises:
        DriverError: The user may not; the message contains the statements for somebody who may.
    """
    for statements in outdated():
        try:
            with session.transaction("change a table of an earlier version"):
                for statement in statements:
                    session.execute_ddl(statement)
        except DriverError as error:
            left = outdated()
            if statements not in left:
                continue  # another process was first
            if error.retryable:
                raise
            kind = AccessDenied if isinstance(error, AccessDenied) else DriverError
            texts = "; ".join(each for together in left for each in together)
            message = f"{error}; let somebody who may run this: {texts}"
            raise kind(message, retryable=False) from error
