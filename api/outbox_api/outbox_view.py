"""The read-only side of one outbox: what operators and monitors look at, such as its backlog."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from outbox_api.affinity import Takeover
from outbox_api.fence import LaneStatus, TransactionalLane
from outbox_api.parking import Parked
from outbox_api.record import MarkedRecord

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


class OutboxView(Protocol):
    """A connection that looks at one outbox, its fence and its dead letters; used by one thread at a time.

    Nothing here writes, locks or creates anything; the right to SELECT is enough.

    Every method raises ``DriverError`` if the database refuses or cannot be reached. After a retryable one
    the connection may be broken: close it and connect anew. A call on a connection that somebody has closed
    raises a retryable one, too.
    """

    @property
    def name(self) -> str:
        """The outbox's name with its schema, as the database knows it, however it was configured."""
        ...

    def known_identity(self) -> str | None:
        """Returns what :meth:`OutboxTable.identity` created; ``None`` before it is first asked for."""
        ...

    def transactional_lanes(self) -> dict[int, TransactionalLane]:
        """Returns the lanes that publish in transactions, as they may still after a crash.

        Returns:
            Lane → what was stored about it, ordered by lane. May contain lanes that no longer exist.
        """
        ...

    def parked(self) -> Parked:
        """Returns how much is parked; reads the parked keys only."""
        ...

    def lane_statuses(self) -> list[LaneStatus]:
        """Returns what the fence stores about each lane, ordered by lane; empty before the first leader."""
        ...

    def backlog(self) -> Backlog:
        """Returns how many records wait, without a full scan of a large table."""
        ...

    def peek(self, after: int, limit: int) -> list[MarkedRecord]:
        """Returns rows as they were committed, marked or not, also those of parked keys.

        Who reads on from the last row's id finds all that was there when he began, and is still there; of
        what is written meanwhile, some. Rows that an intake has yet to take in are left out.

        Args:
            after: Rows with higher ids than this.
            limit: How many rows at most.

        Returns:
            The rows, ordered by id, each with when it was created, by the database's clock; one that can be
            no message carries a fault.
        """
        ...

    def origins(self) -> list[OriginBacklog]:
        """Returns how many records of each cluster of origin wait, without a full scan of a large table.

        Returns:
            One element for each cluster of which there are rows, ordered by cluster; also for clusters that
            nobody serves. Empty if the options name no :class:`outbox_api.Origin`.
        """
        ...

    def takeovers(self) -> list[Takeover]:
        """Returns the deliberate takeovers that have begun and not ended, ordered by cluster."""
        ...

    def upkeep(self) -> Upkeep:
        """Returns what waits to be removed from the outbox, and which old snapshot prevents it.

        Reads no rows of the outbox. What the database does not tell, or not this user, is missing in the
        result and no error.
        """
        ...

    def members(self, group: str, seconds: float) -> Mapping[str, int]:
        """Returns the members that noted themselves in the last ``seconds``, as ``Members.note`` does."""
        ...

    def now(self) -> datetime:
        """Returns the present time by the database's clock, with a time zone."""
        ...

    def close(self) -> None:
        """Disconnects. Idempotent, and never raises."""
        ...
