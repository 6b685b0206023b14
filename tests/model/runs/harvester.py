"""A leader: the product's state machine and its producer of runs, as they were in one state."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from outbox_api import Changed, Deliveries, Failure, MarkedRecord
from outbox_core.delivery.commands import Park
from outbox_core.lanes.record_lane import NOTHING, refused

from .client import FakeClient
from .memory import CLOCK, PATIENCE, Made, Time, freeze, new_machine, new_producer, record_of, thaw
from .scope import Scope
from .world import FAILED, POISON, Call, Client, Process, Sent

EARLY, LATE, LAST = 0.0, 20.0, 2.0**60
"""The time at which everything happens; one at which every pause is over; one behind all times."""
_LAST_REPORTS = 1024.0
"""So many seconds after it has failed, a producer waits for no report any more."""


class Seen(NamedTuple):
    """What a leader may do in a state."""

    turns: bool
    gives_up: bool
    refreshes: bool
    marks: bool
    purges: bool
    purges_left: bool
    drained: bool
    leader: int
    leaders: frozenset[int]
    unholds: bool = False


class Harvester:
    """A leader in one state, to be changed by one step.

    Args:
        scope: The world.
        process: Its state; none for one that begins, under a leader id.
        leader: That.

    Attributes:
        machine: What decides.
    """

    def __init__(self, scope: Scope, process: Process | None = None, leader: int = 1) -> None:
        self._scope = scope
        if process is None:
            Made.leader = leader
            self.machine = new_machine(scope.mark, scope.run)
            self._runs, self._reports = new_producer(), Deliveries()
        else:
            self.machine, self._runs, self._reports = thaw(process.memory)
        self._process = process or Process(b"")
        self._runs._reports = lambda: self._reports
        self._runs._producer = None
        if self._process.client is not None:
            records = {record.id: record for record, _ in self._runs._out.values()}
            self._runs._producer = self._client(self._process.client, records)

    def _client(self, client: Client, records: Mapping[int, MarkedRecord]) -> Any:
        return FakeClient(client, records, self._scope.partitions, self._runs._on_delivery)

    def frozen(self) -> Process:
        """Returns its state."""
        client: Any = self._runs._producer
        memory = freeze(self.machine, self._runs, self._reports)
        return self._process._replace(memory=memory, client=client and client.client)

    def seen(self) -> Seen:
        """Returns what it may do; of no use afterwards."""
        machine, client, sender = self.machine, self._process.client, self._runs
        machine.look(EARLY)
        busy = client is not None and (client.troubles or client.fatal or sender._error)
        refreshes = machine.may_refresh
        marks = not refreshes and machine.unhold_due() > EARLY and machine.mark_due() <= LATE
        purges = machine.purge_due() <= LAST
        seen = Seen(
            turns=bool(machine.may_send or self._reports.failed or busy),
            gives_up=bool(sender._out) and not sender._error,
            refreshes=refreshes,
            marks=marks,
            purges=purges and bool(machine.scoreboard.purgeable or machine._repeat),
            purges_left=purges and bool(machine._left.rows) and not machine._repeat,
            drained=machine._draining and machine.drained,
            leader=machine.leader_id.int,
            leaders=frozenset({machine.leader_id.int, *(each.int for each in machine._left._left)}),
        )
        machine.look(LATE)
        return seen._replace(unholds=not machine.may_refresh and machine.unhold_due() <= LATE)

    # --- the loop that sends ------------------------------------------------------------------------

    def turn(
        self, heard: Collection[int], lines: Collection[int], *, patient: bool = True, leads: bool = True
    ) -> Process:
        """Takes reports, and sends.

        Args:
            heard: The records by themselves of which there are reports, by their places.
            lines: The partitions of which there are.
            patient: Whether it waits longer for what has none.
            leads: Whether its lease lasts until it sends.
        """
        self._poll(lines, patient=patient)
        self._hear(heard)
        machine, reports = self.machine, self._reports
        self._reports = Deliveries()
        if reports.delivered:
            machine.delivered(EARLY, reports.delivered)
        if reports.failed:
            machine.failed(reports.failed)
        machine.look(EARLY)
        machine.take_failed(EARLY)
        taken = machine.next_to_send() if machine.may_send else NOTHING
        machine.take_failed(EARLY)
        if not leads:
            self._reports = refused(taken)
            return self.frozen()
        if taken.first:
            Made.client = partial(self._client, Client(), {})
            self._runs.open()
        if taken.others:
            self._runs.send(taken.others)
        sent = [*(Sent(each.id, leads=False) for each in taken.alone)]
        sent += [Sent(each.id, leads=True) for each in taken.first]
        self._process = self._process._replace(alone=tuple(sorted((*self._process.alone, *sent))))
        return self.frozen()

    def _poll(self, lines: Collection[int], *, patient: bool) -> None:
        producer: Any = self._runs._producer
        if producer is None:
            return
        producer.heard = lines
        Time.now = self._runs._until + _LAST_REPORTS if self._runs._until and not lines else CLOCK
        Time.now += 0 if patient else 2 * PATIENCE
        self._runs.poll(0.0, flushes=False)
        Time.now = CLOCK

    def _hear(self, heard: Collection[int]) -> None:
        """Takes reports of what was sent by itself, as the product's sender does."""
        alone = self._process.alone
        for each in (alone[place] for place in heard):
            record = self._record(each.row, None)
            if each.stage in (FAILED, POISON):
                self._reports.failed.append(Failure(record, "refused", retryable=each.stage == FAILED))
                continue
            if each.leads:
                record = self._record(each.row, each.partition if self._runs.ready else None)
                self._runs.begun(record.topic, record.partition, 0)
            self._reports.delivered.append(record)
        left = tuple(each for place, each in enumerate(alone) if place not in heard)
        self._process = self._process._replace(alone=left)

    def _record(self, row: int, partition: int | None) -> MarkedRecord:
        return record_of(row, str(self._scope.keys[row]), partition)

    # --- the loops of the database ------------------------------------------------------------------

    def lapse(self) -> Process:
        """Finds that its lease is over for a moment."""
        self.machine.look(EARLY, leading=False)
        return self.frozen()

    def drain(self) -> Process:
        """Is told to hand over."""
        self.machine.drain()
        return self.frozen()

    def refresh(self, leader: int) -> Process:
        """Takes this leader id, and raises the epoch in the fence."""
        self.machine.look(EARLY)
        Made.leader = leader
        self.machine.next_leader_id(EARLY)
        self.machine.entered()
        return self.frozen()

    def mark(self) -> Process:
        """Asks for a mark."""
        self.machine.look(EARLY)
        mark = self.machine.next_mark(EARLY)
        call = Call("mark", mark.leader_id.int, limit=mark.limit, excluded=mark.excluded_keys)
        return self.frozen()._replace(marker=call)

    def unhold(self) -> Process:
        """Asks for a reset or a park, as the holds are over."""
        self.machine.look(LATE)
        unhold = self.machine.next_unhold(EARLY)
        assert unhold.leader_id is not None
        call = Call("reset", unhold.leader_id.int, tuple(unhold.ids))
        if isinstance(unhold, Park):
            call = call._replace(verb="park", heads=tuple(poison.id for poison in unhold.poisons))
        return self.frozen()._replace(marker=call)

    def purge(self, *, left: bool) -> Process:
        """Asks for a purge: of what others had locked, or of what is delivered."""
        self.machine.look(EARLY)
        purge = self.machine.next_purge(LAST if left else EARLY)
        return self.frozen()._replace(purger=Call("purge", purge.leader_id.int, tuple(purge.ids)))

    # --- what the database answers ------------------------------------------------------------------

    def marked(self, rows: Iterable[int]) -> Process:
        """Takes the answer to a mark."""
        self.machine.marked(EARLY, [self._record(row, None) for row in rows])
        return self.frozen()._replace(marker=None)

    def reset_done(self, locked: Sequence[int]) -> Process:
        """Takes the answer to a reset."""
        self.machine.reset_done(EARLY, locked)
        return self.frozen()._replace(marker=None)

    def park_done(self, keys: int, locked: Sequence[int]) -> Process:
        """Takes the answer to a park."""
        self.machine.park_done(EARLY, Changed(keys, locked))
        return self.frozen()._replace(marker=None)

    def purged(self, rows: int, locked: Sequence[int]) -> Process:
        """Takes the answer to a purge."""
        self.machine.purged(EARLY, Changed(rows, locked))
        return self.frozen()._replace(purger=None)

    def unknown(self, call: Call) -> Process:
        """Takes it that there is no answer."""
        if call.verb == "mark":
            self.machine.mark_unknown(EARLY)
        else:
            self.machine.finishing_unknown(EARLY)
        process = self.frozen()
        cut = tuple(loop for loop in process.cut if loop != call.loop)
        if call.verb == "purge":
            return process._replace(purger=None, cut=cut)
        return process._replace(marker=None, cut=cut)
