"""The affinity seam: which rows this cluster may take."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

MAX_CLUSTER = 9_000
"""The highest number of a cluster."""


@dataclass(frozen=True, slots=True)
class ColumnIs:
    """Holds for rows whose ``column`` equals ``value``, and that are old enough.

    Rows with an age are taken as a prefix, in the order of ids: no row is taken while one with a lower id,
    and the same value and key, is not old enough. So clocks cannot change the order within a key. A dialect
    may hold up rows of other keys, too, behind one that is not old enough, whatever its lane, parked or not.

    A row without a time is never old enough, and holds up those behind it in the same way. Nobody can tell
    that its own cluster has had time to take it, so a row that is taken with an age could be taken while that
    cluster works. Its own cluster takes it, and whoever is told to take over without an age.

    Attributes:
        column: The column.
        value: Its value.
        older_than: The least age in seconds, by the database's clock; 0 for rows of any age.
        since: The column with the time from which the age counts; ``create_time`` where it is null.
    """

    column: str
    value: str | int
    older_than: float = 0.0
    since: str = "create_time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """How the rows of an outbox tell in which cluster they were written.

    Attributes:
        column: The column with the cluster's number.
        own: The number of this cluster, from 1.
        known: The numbers of all clusters, ascending. A row with another number is an orphan.
        existing: The cluster that rows belong to which the table had before it had the column.
        arrival: The column with the time when a row came to this replica; empty if there is none, and ages
            count from ``create_time``, by the clock of the cluster that wrote the row.
        replicas: Cluster → data source of its replica, where this cluster can reach it; to measure clocks.
    """

    column: str
    own: int
    known: tuple[int, ...]
    existing: int = 1
    arrival: str = ""
    replicas: Mapping[int, str] = field(default_factory=dict, repr=False)

    def is_of_another(self, default: int | None) -> bool:
        """Returns whether a table is another cluster's, by the column's default; ``None`` is no number."""
        return default != self.own and default in self.known


@dataclass(frozen=True, slots=True)
class Takeover:
    """A deliberate takeover: the rows of another cluster are taken without delay.

    Attributes:
        cluster: Whose rows.
        reason: Why, as the operator said.
        since: When it began, by the database's clock.
    """

    cluster: int
    reason: str
    since: datetime


class Affinity(Protocol):
    """Limits what one cluster takes when several harvest copies of the same table.

    See docs/algorithm.md, "Several clusters".
    """

    def eligible(self, taken_over: Collection[int] = ()) -> Sequence[ColumnIs]:
        """Returns the conditions of which at least one must hold for a row to be taken.

        Args:
            taken_over: The clusters whose rows this one was told to take over at once.

        Returns:
            The sources of rows: each mark or selection takes rows of one of them. The first is looked at
            every time, the others now and then. An empty sequence makes every row eligible. The answer
            depends on nothing but the object and ``taken_over``.
        """
        ...

    def origin(self) -> Origin | None:
        """Returns how rows tell where they were written; ``None`` if they do not."""
        ...
