"""Whether a database can remove the rows that were purged, and who prevents it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OldSnapshot:
    """The oldest view of the data that somebody keeps; the database keeps every row that it can see.

    Attributes:
        owner: Who keeps it, for operators: a process with its user and program, a prepared transaction, a
            replication slot. Free of secrets.
        seconds: For how long at most, by the database's clock; ``None`` if that is not known.
        transactions: How many transactions have begun since; ``None`` if that is not known.
    """

    owner: str
    seconds: float | None = None
    transactions: int | None = None


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What waits to be removed from an outbox, and why.

    Attributes:
        dead: How many ``unit`` wait to be removed, an estimate; ``None`` if that is not known.
        unit: What ``dead`` counts: dead rows of the outbox, or something else in the words of the database.
        vacuumed: Seconds since the database last tried to remove them; ``None`` if never, or not known.
        snapshot: The oldest snapshot that is kept; ``None`` if there is none, or none can be seen.
        visible: Whether this connection may see all about everybody's snapshots. If it may not, there may be
            older ones than ``snapshot``, and an age may be missing.
    """

    dead: int | None = None
    unit: str = "dead rows"
    vacuumed: float | None = None
    snapshot: OldSnapshot | None = None
    visible: bool = False
