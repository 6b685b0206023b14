"""Rows that are added to a fence."""

from __future__ import annotations

from uuid import uuid4

from outbox_sdk.fence import IDENTITY_DIGITS
from outbox_sdk.portable.columns import GUARD
from outbox_sdk.portable.session import AlreadyExists, Session
from outbox_sdk.portable.statements import Statements


def make_guard(session: Session, sql: Statements, name: str) -> None:
    """Creates the row of the fence that bumps and operators lock first, if it does not exist."""
    if session.query("look at the fence", sql.guard, name=name):
        return
    try:
        with session.transaction("make the fence's guard"):
            session.execute(sql.make_lane, **new_lane(name, GUARD, "nobody"))
    except AlreadyExists:
        pass  # another process was first


def new_lane(name: str, lane: int, holder: str) -> dict[str, object]:
    """Returns what a new row of the fence holds."""
    identity = uuid4().hex[:IDENTITY_DIGITS]
    return {"name": name, "lane": lane, "lanes": 0, "token": 0, "holder": holder, "identity": identity}
