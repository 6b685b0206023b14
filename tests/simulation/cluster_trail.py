"""What happened to every row in every cluster, and the invariants (docs/simulation.md)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from outbox_api import MarkedRecord

from .cluster_replica import Row
from .trail import Violation

if TYPE_CHECKING:
    from .cluster_world import ClusterWorld

SLACK = 3.0
"""Seconds that a harvester may take beyond what ages demand: a backlog, a row that is committed late."""
AFTERMATH = 3.0
"""Seconds after which what was held up has been caught up with, besides the travel."""


@dataclass(slots=True)
class Entry:
    """What happened to one row.

    Attributes:
        origin: The cluster that wrote it.
        key: Its key.
        begun: When it was written.
        committed: When it was committed.
        arrived: Cluster → when it came there last.
        delivered: Who has delivered it, in order.
    """

    origin: int
    key: str
    begun: float
    committed: float
    arrived: dict[int, float] = field(default_factory=dict)
    delivered: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Trouble:
    """Something that excuses deliveries by others.

    Attributes:
        clusters: Whose.
        since: From when.
        until: Until when.
    """

    clusters: frozenset[int]
    since: float
    until: float = float("inf")


class Trail:
    """Watches one world.

    Attributes:
        entries: Id → what happened to the row.
        troubles: What excuses deliveries by others.
        losses: How often a cluster was lost.
        kills: Cluster → how often its harvester was killed.
        counts: What was done.
    """

    def __init__(self, world: ClusterWorld) -> None:
        self.entries: dict[int, Entry] = {}
        self.troubles: list[Trouble] = []
        self.losses = 0
        self.kills: Counter[int] = Counter()
        self.counts: Counter[str] = Counter()
        self._world = world
        self._seen: dict[tuple[int, str], set[int]] = defaultdict(set)
        self._owed: dict[tuple[int, str], set[int]] = defaultdict(set)

    # --- what happens -------------------------------------------------------------------------------

    def committed(self, row: Row, cluster: int) -> None:
        """A row was committed where it was written."""
        now = self._world.now
        begun = row.created - self._world.skew_at(row)
        self.entries[row.number] = Entry(row.origin, row.key, begun, now, {cluster: now})

    def arrived(self, row: Row, cluster: int) -> None:
        """A row came to another replica."""
        self.entries[row.number].arrived[cluster] = self._world.now

    def delivered(self, record: MarkedRecord, cluster: int, taken_over: Collection[int]) -> None:
        """The broker of a cluster has appended a record, of a harvester with these deliberate takeovers."""
        entry = self.entries[record.id]
        self.counts["delivered"] += 1
        seen = self._seen[cluster, record.key]
        if record.id not in seen and record.id < max(seen, default=0):
            self._break("C4", f"cluster {cluster} delivers {record.id} of {record.key} late", entry)
        later = {number for number in seen if number > record.id}
        self.counts["repeats behind later records"] += bool(later)
        self._owed[cluster, record.key] |= later
        self._owed[cluster, record.key].discard(record.id)
        seen.add(record.id)
        entry.delivered.append(cluster)
        if cluster != entry.origin:
            self.counts["taken over"] += 1
            if entry.origin in taken_over:
                self.counts["taken over deliberately"] += 1
            else:
                self._check_foreign(record.id, entry, cluster)
        self._check_times(record.id, entry)

    def trouble(self, clusters: frozenset[int]) -> Trouble:
        """Something begins that excuses deliveries by others."""
        made = Trouble(clusters, self._world.now)
        self.troubles.append(made)
        return made

    def over(self, trouble: Trouble) -> None:
        """It is over, and soon caught up with."""
        trouble.until = self._world.now + 2 * self._world.scenario.travel + AFTERMATH

    # --- invariants ---------------------------------------------------------------------------------

    def _check_foreign(self, number: int, entry: Entry, cluster: int) -> None:
        """C2: nobody takes a row of another without a reason, or before its time."""
        world, least = self._world, self._least_age(entry, cluster)
        since = entry.arrived[cluster] if world.scenario.arrival else entry.begun
        if world.now - since < least:
            text = f"cluster {cluster} takes {number} of {entry.origin} after {world.now - since:.2f} s"
            self._break("C2", f"{text}, not {least:.2f} s", entry)
        involved = {entry.origin, *entry.delivered}
        if not any(
            each.clusters & involved and each.since <= world.now and each.until >= entry.begun
            for each in self.troubles
        ):
            self._break("C2", f"cluster {cluster} takes {number} of {entry.origin} without reason", entry)

    def _least_age(self, entry: Entry, cluster: int) -> float:
        """Returns the age from which a cluster may take a row of another."""
        scenario = self._world.scenario
        clocks = 2 * scenario.skew if {"skew", "steps"} & set(scenario.kinds) else 0.0
        if scenario.arrival and "steps" not in scenario.kinds:
            clocks = 0.0  # one clock says when it came, and when it is old
        return min(self._world.ranks(cluster, entry.origin)) * scenario.delay - clocks

    def _came_old(self, entry: Entry, cluster: int) -> bool:
        """Returns whether a row came so late that a cluster takes it at once: a lost one has brought it.

        Another may have taken it a moment before, and that deletion may not have come yet.
        """
        came = entry.arrived.get(cluster, entry.begun)
        return not self._world.scenario.arrival and came - entry.begun >= self._least_age(entry, cluster)

    def _check_times(self, number: int, entry: Entry) -> None:
        """C3: as many others deliver a row as clusters were lost, and each once in each life."""
        for cluster, times in Counter(entry.delivered).items():
            if times > 1 + self.kills[cluster]:
                self._break("C3", f"cluster {cluster} delivers {number} {times} times", entry)
        others = {each for each in set(entry.delivered) - {entry.origin} if not self._came_old(entry, each)}
        if self._world.bounded and len(others) > self.losses:
            text = f"{number} of {entry.origin} is delivered by {sorted(others)}"
            self._break("C3", f"{text} after {self.losses} losses", entry)

    def sweep(self) -> None:
        """C5: whoever may take a row, and all of its origin before it, does so in time."""
        world, scenario = self._world, self._world.scenario
        clocks = 2 * scenario.skew if {"skew", "steps"} & set(scenario.kinds) else 0.0
        for cluster, harvester in world.harvesters.items():
            if not (harvester.alive and world.replicas[cluster].up):
                continue
            idle = max(harvester.began, world.returned[cluster])
            came: dict[int, float] = {}
            for number, row in sorted(world.replicas[cluster].rows.items()):
                entry = self.entries[number]
                came[row.origin] = max(came.get(row.origin, 0.0), entry.arrived[cluster])
                age = max(world.ranks(cluster, row.origin)) * scenario.delay
                if row.origin == cluster or row.origin in harvester.taken_over:
                    age = 0.0
                late = world.now - max(came[row.origin] + age + (clocks if age else 0), idle)
                if late > SLACK + age / 20:
                    text = f"cluster {cluster} has not taken {number} of {row.origin}"
                    self._break("C5", f"{text}: {late:.1f} s too late", entry)

    def check_end(self) -> None:
        """C1: what a replica that lives has had is delivered, and no replica keeps anything. C4 also."""
        world = self._world
        living = {cluster for cluster, each in world.harvesters.items() if each.alive}
        for number, entry in self.entries.items():
            if not entry.delivered and living & set(entry.arrived):
                self._break("C1", f"{number} of {entry.origin} is lost", entry)
        for cluster in living:
            if rows := world.replicas[cluster].rows:
                number = min(rows)
                text = f"cluster {cluster} keeps {len(rows)} rows, {number} first"
                self._break("C1", text, self.entries[number])

        for (cluster, key), owed in self._owed.items():
            for number in owed:
                text = f"in cluster {cluster} {number} of {key} did not follow again what was repeated"
                self._break("C4", text, self.entries[number])

    def _break(self, invariant: str, text: str, entry: Entry) -> None:
        raise Violation(invariant, f"{text} at {self._world.now:.3f}: {entry}", key=entry.key)
