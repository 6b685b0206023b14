"""The harvester of one cluster: a state machine of the product, its database and its broker."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any
from uuid import UUID

from outbox_api import Advanced, Batch, Changed, MarkedRecord
from outbox_core.delivery.at_least_once import MarkPurgeReset
from outbox_core.delivery.commands import Advance, Mark, Publish
from outbox_core.delivery.exactly_once import SelectPublishPurge
from outbox_core.delivery.sources import ages
from outbox_core.settings import Failures, Limits

from .cluster_replica import Replica, Row

if TYPE_CHECKING:
    from .cluster_world import ClusterWorld

LIMITS = Limits(
    mark_query_records=50, max_batch_records=50, max_in_flight_records=50, send_buffer=50, queue_timeout=3600
)
FAILURES = Failures()
LOOK_SECONDS = 1.0
"""The longest time between two looks at the clock."""
LEAST_PAUSE = 0.0005
"""Seconds; a loop of the product is no faster."""


class Harvester:
    """One lane, which leads all rows of its cluster's replica, until it is killed.

    Args:
        world: The world.
        replica: Its replica.
        taken_over: The clusters of deliberate takeovers when it began to lead.
        count: How many clusters there are, as it was told.
    """

    def __init__(
        self, world: ClusterWorld, replica: Replica, taken_over: tuple[int, ...], count: int
    ) -> None:
        self.alive = True
        self.began = world.now
        self.taken_over = taken_over
        self._world, self._replica = world, replica
        self.conditions = world.parts.eligible(world.scenario.affinity(replica.cluster, count), taken_over)
        self._machine: Any = world.machine(ages(self.conditions))
        self._wake = -1.0
        self._sent = world.now
        # What the checkpoint says is in the log is purged before anything is selected.
        for number in world.checkpoints.pop(replica.cluster, ()):
            replica.delete(number)
        self._loop()

    def kill(self) -> None:
        """Ends it; what it has handed to the network may arrive."""
        self.alive = False

    # --- the loop -----------------------------------------------------------------------------------

    def _loop(self) -> None:
        if not self.alive:
            return
        now = self._world.now
        if isinstance(self._machine, SelectPublishPurge):
            wake = self._do_batches(self._machine, now)
        else:
            wake = self._do_records(self._machine, now)
        wake = max(wake, now + LEAST_PAUSE)
        if wake != self._wake and wake < float("inf"):
            self._wake = wake
            self._world.at(wake, self._awake, wake)

    def _do_records(self, machine: MarkPurgeReset, now: float) -> float:
        """Does what is due, and returns when to look again."""
        machine.look(now)
        if machine.may_refresh:
            machine.next_leader_id(now)
            machine.entered()
        if machine.may_send:
            for each in chain.from_iterable(machine.next_to_send()):
                self._sent = max(self._sent, self._world.now) + self._world.chance.uniform(0.0005, 0.003)
                self._world.at(self._sent, self._publish, [each], None)
        if machine.purge_due() <= now:
            purge = machine.next_purge(now)
            self._ask(self._purge, purge.leader_id, purge.ids)
        if machine.mark_due() <= now:
            self._ask(self._mark, machine.next_mark(now))
        return min(machine.purge_due(), machine.mark_due(), now + LOOK_SECONDS)

    def _do_batches(self, machine: SelectPublishPurge, now: float) -> float:
        """Does what is due, and returns when to look again."""
        machine.look(leading=True)
        if publish := machine.next_to_publish(now):
            done = self._world.now + self._world.chance.uniform(0.003, 0.02)
            self._world.at(done, self._publish, publish.records, publish)
        if machine.database_due() <= now:
            self._ask(self._advance, machine.next_for_database(now))
        return min(machine.publish_due(), machine.database_due())

    def _awake(self, wake: float) -> None:
        if wake == self._wake:
            self._wake = -1.0
            self._loop()

    # --- the database -------------------------------------------------------------------------------

    def _ask(self, work: Any, *arguments: Any) -> None:
        """Has the database do something; the answer comes later. Without a database there is none."""
        chance, world = self._world.chance, self._world
        there = world.now + chance.uniform(0.0005, 0.004)
        world.at(there, lambda: self._there(work, *arguments))

    def _there(self, work: Any, *arguments: Any) -> None:
        if not self._replica.up or not self.alive:
            return
        answer = work(*arguments)
        self._world.at(self._world.now + self._world.chance.uniform(0.0005, 0.004), self._answered, answer)

    def _answered(self, answer: Any) -> None:
        if self.alive:
            answer()
            self._loop()

    def _mark(self, mark: Mark) -> Any:
        mine = [number for number, row in self._replica.rows.items() if row.leader == mark.leader_id]
        rows = self._look(mark.source, mark.limit, mine, mark.excluded_keys)
        for row in rows:
            row.leader = mark.leader_id
        return lambda: self._machine.marked(self._world.now, [record(row) for row in rows])

    def _purge(self, leader_id: UUID, ids: list[int]) -> Any:
        marked = [n for n in ids if n in self._replica.rows and self._replica.rows[n].leader == leader_id]
        rows = sum(self._replica.delete(number) for number in marked)
        return lambda: self._machine.purged(self._world.now, Changed(rows))

    def _advance(self, advance: Advance) -> Any:
        finished = _ids(advance.finished)
        logged = self._world.checkpoints.get(self._replica.cluster, set())
        rows = sum(self._replica.delete(number) for number in finished)
        logged -= set(finished)
        known = {*finished, *_ids(advance.pending)}
        found = self._look(advance.source, advance.limit, known) if advance.limit else []
        result = Advanced(rows, [record(row) for row in found])
        return lambda: self._machine.advanced(self._world.now, result)

    def _look(self, source: int, limit: int, without: Any, keys: Any = ()) -> list[Row]:
        return self._replica.look(self.conditions[source], limit, set(without), set(keys))

    # --- the broker ---------------------------------------------------------------------------------

    def _publish(self, records: list[MarkedRecord], batch: Publish | None) -> None:
        """The broker appends; what a killed process has sent may be lost, but then all behind it, too."""
        if not self.alive and self._world.chance.random() < 0.5:
            self._sent = float("inf")
        if self._sent == float("inf"):
            return
        for each in records:
            self._world.trail.delivered(each, self._replica.cluster, self.taken_over)
        if batch:
            self._world.checkpoints.setdefault(self._replica.cluster, set()).update(r.id for r in records)
        acknowledged = self._world.now + self._world.chance.uniform(0.0005, 0.003)
        self._world.at(acknowledged, self._answered, lambda: self._acknowledge(records, batch))

    def _acknowledge(self, records: list[MarkedRecord], batch: Publish | None) -> None:
        if batch:
            self._machine.published(self._world.now)
        else:
            delivered = [each._replace(partition=0) for each in records]
            self._machine.delivered(self._world.now, delivered)


def record(row: Row) -> MarkedRecord:
    """Returns a row as a dialect does."""
    return MarkedRecord(row.number, "topic", row.key, "value", [])


def _ids(batches: Any) -> list[int]:
    return [number for batch in batches for number in Batch.ids(batch)]
