"""One history of several clusters, in virtual time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import Any
from uuid import UUID

from outbox_core.delivery.at_least_once import MarkPurgeReset
from outbox_core.delivery.exactly_once import SelectPublishPurge

from .cluster_faults import ClusterFaults
from .cluster_harvest import FAILURES, LIMITS, Harvester
from .cluster_replica import BASE, Link, Replica, Row
from .cluster_scenario import KINDS, Parts, Scenario
from .cluster_trail import Trail
from .scheduler import Action, Scheduler

KEYS = 5
"""Keys of each cluster."""


class ClusterWorld:
    """All clusters, their links, and what happens to them.

    Attributes:
        taken_over: Cluster → the clusters whose rows it is told to take at once.
        returned: Cluster → when it came back.
        lost: The clusters that have no harvester.
        growing: Whether the last cluster begins later than the others.
        known: Cluster → how many clusters it is told there are.

    Args:
        seed: Determines everything.
        parts: The product, or a mutant of it.
        kinds: What may happen.
        fixed: What of the scenario is not drawn.
    """

    def __init__(
        self,
        seed: int,
        parts: Parts | None = None,
        kinds: Sequence[str] = KINDS,
        fixed: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.chance = Random(seed)
        self.parts = parts or Parts()
        self.scenario = Scenario.draw(self.chance, self.parts, kinds, fixed)
        self._scheduler = Scheduler()
        self.trail = Trail(self)
        self.numbers = range(1, self.scenario.count + 1)
        self.replicas = {number: Replica(self, number) for number in self.numbers}
        self.links = {
            (source, target): Link(self, self.replicas[source], self.replicas[target])
            for source in self.numbers
            for target in self.numbers
            if source != target
        }
        self.harvesters: dict[int, Harvester] = {}
        self.checkpoints: dict[int, set[int]] = {}
        self.taken_over: dict[int, tuple[int, ...]] = defaultdict(tuple)
        self.returned: dict[int, float] = defaultdict(float)
        self.lost: set[int] = set()
        self.growing = "growth" in self.scenario.kinds and self.scenario.count > 2
        self.known = dict.fromkeys(self.numbers, self.scenario.count - self.growing)
        self._written: dict[int, int] = dict.fromkeys(self.numbers, 0)
        self._skews: dict[int, float] = {}
        self._busy: set[str] = set()
        self._minted = 0

    # --- what the parts need ------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """The true time."""
        return self._scheduler.now

    @property
    def steps(self) -> int:
        """How many events have run."""
        return self._scheduler.steps

    def at(self, time: float, action: Action, *arguments: Any) -> None:
        """Has something happen."""
        self._scheduler.at(time, action, *arguments)

    def travel(self) -> float:
        """Returns how long the next change travels."""
        return self.chance.uniform(0.001, self.scenario.travel)

    def links_from(self, cluster: int) -> Iterator[Link]:
        """Yields the links over which a cluster publishes."""
        return (link for (source, _), link in self.links.items() if source == cluster)

    def machine(self, ages: Sequence[float]) -> MarkPurgeReset | SelectPublishPurge:
        """Makes a state machine of the product."""
        if self.scenario.exactly_once:
            return self.parts.batches(LIMITS, FAILURES, self.chance.random, (), ages)
        return self.parts.records(
            LIMITS, FAILURES, self._mint, self.chance.random, ages, run_records=self.scenario.run_records
        )

    def skew_at(self, row: Row) -> float:
        """Returns how far the clock was ahead that a row was dated by."""
        return self._skews[row.number]

    def ranks(self, cluster: int, origin: int) -> set[int]:
        """Returns the ranks that a cluster may have, by the counts that are known anywhere."""
        ranks = {self.scenario.rank(cluster, origin)}
        if self.growing and self.scenario.count not in (cluster, origin):
            ranks.add((cluster - origin) % (self.scenario.count - 1))
        return ranks

    @property
    def bounded(self) -> bool:
        """Whether losses alone bound how many others deliver a row.

        They do not if links are cut, or while clusters disagree on their number. A cluster that returns with
        rows of which the others have only heard that they are purged brings them again, unless it passes the
        purges on, too.
        """
        kinds = set(self.scenario.kinds)
        returns = "return" in kinds and not self.scenario.forwards
        return not (kinds & {"cut", "growth", "takeover"} or returns)

    def _mint(self) -> UUID:
        self._minted += 1
        return UUID(int=self._minted)

    # --- the history --------------------------------------------------------------------------------

    def run(self) -> None:
        """Runs all of it.

        Raises:
            Violation: An invariant is broken.
        """
        scenario, chance = self.scenario, self.chance
        for number in self.numbers:
            if not (self.growing and number == scenario.count):
                self.at(chance.uniform(0.0, 0.1), self.open, number)
        faults = ClusterFaults(self)
        for kind in scenario.kinds:
            faults.plan(kind)
        end = scenario.seconds + (scenario.count + 2) * scenario.delay + 10.0
        for moment in range(int(end * 2)):
            self.at(moment / 2, self.trail.sweep)
        self._scheduler.run(end)
        self.trail.check_end()

    def open(self, number: int) -> None:
        self.lead(number)
        self._write(number)

    def lead(self, number: int) -> None:
        """Starts a harvester, in place of any that there is."""
        if number in self.harvesters and self.harvesters[number].alive:
            self.kill(number)
        if number not in self.lost:
            taken_over = self.taken_over[number]
            self.harvesters[number] = Harvester(self, self.replicas[number], taken_over, self.known[number])

    def kill(self, number: int) -> None:
        if self.harvesters[number].alive:
            self.trail.kills[number] += 1
            self.harvesters[number].kill()

    def _write(self, number: int) -> None:
        """Writes one transaction, and the next one later."""
        if self.now > self.scenario.seconds:
            return
        self.at(self.now + self.chance.expovariate(self.scenario.rate), self._write, number)
        replica = self.replicas[number]
        key = f"{number}-{self.chance.randrange(KEYS)}"
        if not replica.up or key in self._busy:
            return
        rows = []
        for _ in range(self.chance.randint(1, 3)):
            self._written[number] += 1
            row = Row(number * BASE + self._written[number], number, key, replica.clock, replica.clock)
            self._skews[row.number] = replica.skew
            rows.append(row)
        self._busy.add(key)
        self.at(
            self.now + self.chance.choice([0.001, self.chance.uniform(0.0, 0.5)]), self._commit, key, rows
        )

    def _commit(self, key: str, rows: list[Row]) -> None:
        self._busy.discard(key)
        replica = self.replicas[rows[0].origin]
        if replica.up:
            for row in rows:
                replica.insert(row)
