"""The read-only side of one outbox: what operators and monitors look at, such as its backlog."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

MAX_COUNTED = 10_000
"""The backlog is counted up to this many rows, and estimated beyond."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """How many records wait in the outbox.

    Attributes:
        records: Rows in the table, marked or not; an estimate when ``exact`` is false.
        exact: Whether ``records`` was counted.
        oldest: Age in seconds, by the database's clock, of the oldest row whose key is not parked; ``None``
            if there is none. Behind very many rows of parked keys it is an upper bound.
    """

    records: int
    exact: bool
    oldest: float | None

    @classmethod
    def of(cls, count: int, to_take_in: int, oldest: float | None, estimate: Callable[[], int]) -> Backlog:
        """Makes a backlog of what a dialect has counted.

        Args:
            count: Rows of the outbox, counted up to ``MAX_COUNTED + 1``.
            to_take_in: Rows of the intake's table, counted likewise.
            oldest: As above.
            estimate: Estimates the rows of the outbox; called only if there are more than ``MAX_COUNTED``.
        """
        if count <= MAX_COUNTED:
            return cls(count + to_take_in, exact=to_take_in <= MAX_COUNTED, oldest=oldest)
        return cls(max(count, estimate()) + to_take_in, exact=False, oldest=oldest)


@dataclass(frozen=True, slots=True)
class OriginBacklog:
    """How many records of one cluster of origin wait in the outbox.

    Attributes:
        cluster: The cluster's number.
        records: Its rows, marked or not; at most ``MAX_COUNTED`` are counted.
        exact: Whether there are no more than ``records``.
        oldest: Age in seconds, by the database's clock, of its row with the lowest id.
    """

    cluster: int
    records: int
    exact: bool
    oldest: float


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


@dataclass(frozen=True, slots=True)
class WaitingGroup:
    """Rows of one topic, or of one topic and key, among those that wait.

    Attributes:
        topic: The topic, as :func:`outbox_api.seams.parking.listed_key` cuts it.
        key: The key, cut likewise; ``None`` for rows of any key.
        first: The lowest id of these rows.
        rows: How many there are.
        marked: How many of them carry a leader id: a lane has them, or had them.
        oldest: Age in seconds of the oldest, by the database's clock; ``None`` if no row's time can be read.
    """

    topic: str
    key: str | None
    first: int
    rows: int
    marked: int
    oldest: float | None


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """One row that waits, without what it contains.

    Attributes:
        id: Its id.
        topic: Its topic, cut as that of a group.
        age: For how many seconds it has waited, by the database's clock; ``None`` if that cannot be read.
        size: How many bytes or characters its key and value have, about.
        marked: Whether it carries a leader id.
    """

    id: int
    topic: str
    age: float | None
    size: int
    marked: bool


@dataclass(frozen=True, slots=True)
class WaitingKey:
    """The rows of one key.

    Attributes:
        key: The key, whole; ``None`` if the row is gone by which it was asked for.
        rows: How many there are.
        first: The first of them, by id.
    """

    key: str | None
    rows: int = 0
    first: Sequence[WaitingRow] = ()
