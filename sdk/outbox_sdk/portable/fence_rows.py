"""Rows that are added to a fence."""

from __future__ import annotations

from uuid import uuid4

from outbox_sdk.errors import AccessDenied
from outbox_sdk.fence import IDENTITY_DIGITS, perhaps_renamed
from outbox_sdk.portable.columns import GUARD
from outbox_sdk.portable.names import TableName
from outbox_sdk.portable.session import AlreadyExists, Session
from outbox_sdk.portable.statements import Statements


def make_guard(session: Session, sql: Statements, name: str) -> None:
    """Creates the row of the fence that bumps and operators lock first, if it does not exist.

    Raises:
        DriverError: The outbox may have been renamed: then what is noted of it must be renamed first.
    """
    if session.query("look at the fence", sql.guard, name=name):
        return
    if former := _without_table(session, sql):
        raise perhaps_renamed(name, former, sql.fence, sql.letters)
    try:
        with session.transaction("make the fence's guard"):
            session.execute(sql.make_lane, **new_lane(name, GUARD, "nobody"))
    except AlreadyExists:
        pass  # another process was first


def _without_table(session: Session, sql: Statements) -> set[str]:
    """Returns the names of which more is noted than can be made anew, and of which there is no table."""
    noted = {str(row[0]) for row in session.query("look at the fence", sql.noted)}
    return {name for name in noted if _is_missing(session, name)}


def _is_missing(session: Session, name: str) -> bool:
    schema, _, table = name.rpartition(".")
    try:
        return session.columns(session.idiom.quote_table(TableName(schema, table))) is None
    except AccessDenied:  # it may be there, and be none of this user's
        return False


def new_lane(name: str, lane: int, holder: str) -> dict[str, object]:
    """Returns what a new row of the fence holds."""
    identity = uuid4().hex[:IDENTITY_DIGITS]
    return {"name": name, "lane": lane, "lanes": 0, "token": 0, "holder": holder, "identity": identity}
