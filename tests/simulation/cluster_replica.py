"""The replicas of one outbox, and the links over which they replicate."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import UUID

from outbox_api import ColumnIs

if TYPE_CHECKING:
    from .cluster_world import ClusterWorld


@dataclass(slots=True)
class Row:
    """A row of one replica.

    Attributes:
        number: Its id, dense and rising in each cluster.
        origin: The cluster that wrote it.
        key: Its key; each has one cluster.
        created: The time by the clock of the cluster that wrote it.
        arrived: The time by this replica's clock when it came here.
        leader: Who has marked it here.
    """

    number: int
    origin: int
    key: str
    created: float
    arrived: float
    leader: UUID | None = None


BASE = 10**9
"""The ids of a cluster begin at its number times this."""

Change = Row | int
"""A row that was inserted, or the id of one that was deleted."""


def prefix(rows: list[Row], condition: ColumnIs, clock: float) -> Iterator[Row]:
    """Yields the rows that meet a condition, in the order of ids, up to the first that is too young.

    So every dialect takes them (:class:`outbox_api.ColumnIs`).
    """
    for row in rows:
        if row.origin != condition.value:
            continue
        if condition.older_than > 0 and clock - since(row, condition) <= condition.older_than:
            return
        yield row


def since(row: Row, condition: ColumnIs) -> float:
    """Returns from when the row's age counts."""
    return row.created if condition.since == "create_time" else row.arrived


Choose = Callable[[list[Row], ColumnIs, float], Iterator[Row]]


class Replica:
    """One cluster's replica.

    Attributes:
        up: Whether the database can be reached.
        skew: How far its clock is ahead of the true time.
        rows: Id → row.
    """

    def __init__(self, world: ClusterWorld, cluster: int) -> None:
        self.up = True
        self.skew = 0.0
        self.rows: dict[int, Row] = {}
        self.cluster = cluster
        self._world = world

    @property
    def clock(self) -> float:
        """The database's clock."""
        return self._world.now + self.skew

    def look(
        self, condition: ColumnIs, limit: int, without: Collection[int] = (), keys: Collection[str] = ()
    ) -> list[Row]:
        """Returns the earliest rows of a source, but for these ids and keys."""
        ordered = [self.rows[number] for number in sorted(self.rows)]
        found = []
        for row in self._world.parts.choose(ordered, condition, self.clock):
            if row.number not in without and row.key not in keys:
                found.append(row)
                if len(found) == limit:
                    break
        return found

    def insert(self, row: Row) -> None:
        """Commits a row that was written here."""
        self.rows[row.number] = row
        self._world.trail.committed(row, self.cluster)
        self._publish(row, local=True)

    def delete(self, number: int) -> bool:
        """Commits a deletion; returns whether there was such a row."""
        if self.rows.pop(number, None) is None:
            return False
        self._publish(number, local=True)
        return True

    def apply(self, change: Change) -> None:
        """Applies what another replica has published. A row that is gone is no error."""
        if isinstance(change, Row):
            self.rows[change.number] = replace(change, arrived=self.clock, leader=None)
            self._world.trail.arrived(change, self.cluster)
        elif self.rows.pop(change, None) is not None:
            self._publish(change, local=False)

    def _publish(self, change: Change, *, local: bool) -> None:
        """Sends a change to all others: deletions of rows of others only where that is set up."""
        if not local and not self._world.scenario.forwards:
            return
        if not self._world.parts.replicates(change, self.cluster):
            return
        for link in self._world.links_from(self.cluster):
            link.send(change)


class Link:
    """What one replica receives of another: in order, late, and not at all while it is cut."""

    def __init__(self, world: ClusterWorld, source: Replica, target: Replica) -> None:
        self.up = True
        self._world = world
        self._source, self._target = source, target
        self._queue: deque[tuple[float, Change]] = deque()
        self._last = 0.0

    @property
    def waiting(self) -> bool:
        """Whether something was published and has not come."""
        return bool(self._queue)

    @property
    def works(self) -> bool:
        """Whether both ends can be reached, and nothing is cut."""
        return self.up and self._source.up and self._target.up

    def send(self, change: Change) -> None:
        """Publishes a change."""
        self._last = max(self._last, self._world.now + self._world.travel())
        self._queue.append((self._last, change))
        self._world.at(self._last, self.deliver)

    def deliver(self) -> None:
        """Applies what is due, in order."""
        while self._queue and self.works and self._queue[0][0] <= self._world.now:
            self._target.apply(self._queue.popleft()[1])

    def resume(self) -> None:
        """Applies, one after the other, what was held up."""
        at = self._world.now
        for place, (due, change) in enumerate(self._queue):
            at += self._world.chance.uniform(0.0001, 0.003)
            self._queue[place] = max(due, at), change
            self._world.at(max(due, at), self.deliver)
        self._last = max(self._last, at)
