"""What waits to be removed from an outbox, by the queries of its idiom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outbox_sdk.errors import DriverError
from outbox_sdk.portable.session import Session
from outbox_sdk.upkeep import OldSnapshot, Upkeep


def read_upkeep(session: Session) -> Upkeep:
    """Returns what waits to be removed; all of it is unknown if the idiom has no queries.

    Raises:
        DriverError: Not to be reached.
    """
    queries = session.idiom.upkeep
    if queries is None:
        return Upkeep()
    dead = next((rows[0][0] for query in queries.dead if (rows := _permitted(session, query))), None)
    found = _permitted(session, queries.snapshot)
    snapshot = OldSnapshot(str(found[0][0]), float(found[0][1])) if found else None
    number = None if dead is None else int(dead)
    return Upkeep(number, queries.unit, snapshot=snapshot, visible=found is not None)


def _permitted(session: Session, query: str) -> Sequence[Sequence[Any]] | None:
    """Returns the rows of a query, or ``None`` if the user may not send it."""
    try:
        return session.query("look for old snapshots", query)
    except DriverError as error:
        if error.retryable:
            raise
        return None
