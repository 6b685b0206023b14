"""Whether the counter of an outbox's ids is behind ids that are in it, as in a copy made without it.

New rows would get lower ids than rows that wait, and be delivered before these.
"""

from __future__ import annotations

from collections.abc import Callable

from outbox_api.base.errors import DriverError
from outbox_api.base.finding import Finding, Level
from outbox_api.portable.session import Session
from outbox_api.portable.table_idiom import TableName
from outbox_api.seams.affinity import Origin

Counter = Callable[[], int | None]
"""Returns the greatest id that was given out; ``None`` if that cannot be known, or cannot be behind."""

_REACH = 10**12
"""Ids so far ahead are not of this counter: clusters that replicate an outbox have ranges further apart."""

_DOING = "compare the ids with their counter"


def ids_behind(session: Session, outbox: str, last: Counter, origin: Origin | None = None) -> str:
    """Says that the counter is behind the rows, in a sentence; returns an empty text if it is not.

    One row alone above the counter, with others below it, is none of a copy: somebody chose its id.
    """
    if (given := last()) is None:
        return ""
    idiom, own = session.idiom, {"own": origin.own} if origin else {}
    also = f"{idiom.quote(origin.column)} = {{own}} AND " if origin else ""
    table = outbox.replace("{", "{{").replace("}", "}}")
    rows = f"FROM {idiom.snapshot_by_id(table)} WHERE {also}id"
    two_above = idiom.limit(f"SELECT id {rows} > {{given}} AND id <= {{reach}} ORDER BY id", "2")
    any_below = idiom.limit(f"SELECT id {rows} <= {{given}}", "1")
    reach = {"reach": min(given + _REACH, 2**63 - 1), **own}
    above = [int(row[0]) for row in session.query(_DOING, two_above, given=given, **reach)]
    # Rows that were written meanwhile have ids that were given out meanwhile.
    if not above or (given := last()) is None or above[-1] <= given:
        return ""
    if len(above) == 1 and session.query(_DOING, any_below, given=given, **own):
        return ""
    return (
        f"the next id is to be {given + 1}, and rows with ids from {above[0]} on are there, as in a copy "
        "that was made without the counter of its ids: new records would be delivered before these"
    )


def refused_ids(outbox: object, seen: str, cure: str) -> DriverError:
    """Returns the error for who would lead an outbox of which :func:`ids_behind` has seen something."""
    return DriverError(f"outbox {outbox} cannot be harvested: {seen}; {cure}", retryable=False)


def last_id(session: Session, outbox: TableName) -> int | None:
    """Returns the greatest id that was given out, as the idiom asks for it."""
    query = session.idiom.last_id
    rows = session.query(_DOING, query, **session.idiom.place(outbox)) if query else ()
    return int(rows[0][0]) if rows and rows[0][0] is not None else None


def ids_behind_finding(seen: str, cure: str) -> Finding:
    """Reports what :func:`ids_behind` has seen."""
    return Finding(Level.ERROR, "record ids", seen, cure)
