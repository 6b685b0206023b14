"""A lane of exactly-once delivery: what its three loops do, and what they make of what comes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from functools import partial

from outbox_api import Advanced, Batch, Failure, Poison

from outbox_core.control.protocol import LaneControl
from outbox_core.delivery.coalescing import Coalesce, Coalesced
from outbox_core.delivery.commands import Advance, Park, Publish
from outbox_core.delivery.exactly_once import SelectPublishPurge
from outbox_core.delivery.recovery import Opened
from outbox_core.events import BatchMoved
from outbox_core.lanes.database import Database
from outbox_core.lanes.lane import LONGEST_WAIT, NEVER, Ask, Lane, Settle, Threads, Work
from outbox_core.lanes.pauses import Pauses
from outbox_core.lanes.record_lane import next_news
from outbox_core.lanes.telemetry import Telemetry

LIFE_SECONDS = 6 * 3600.0
"""The age limit of a lane. Its restart writes a new checkpoint, since brokers delete old ones."""


class ExactlyOnceLane(Lane):
    """A lane that publishes batches in transactions, and purges those that are committed.

    One loop publishes, one does all at the database, and one follows the leader's orders, since either server
    may be silent for long. An unknown outcome ends the lane. Its next epoch fences this one, in the database
    and at the broker, and purges what is in the log already before it selects anything
    (:mod:`outbox_core.delivery.recovery`).

    Args:
        expires: When it reaches its age limit, on the clock of ``threads``.
        torn: Rows of which a part is in the log, as the checkpoint says. While there are any, its note stays.

    Attributes:
        next_to_publish, next_for_database: See :meth:`.Lane.ask`.
    """

    def __init__(
        self,
        machine: SelectPublishPurge,
        number: int,
        telemetry: Telemetry,
        opened: Opened,
        expires: float,
        *,
        control: LaneControl,
        threads: Threads,
        torn: Sized = (),
    ) -> None:
        pauses = Pauses(machine, opened.pauses, threads.clock())
        super().__init__(number, opened.fence, control, telemetry, threads, pauses, machine.policy)
        self.machine = machine
        self._expires = expires
        self._torn = torn
        self._ends = False  # as soon as it has said so at the fence
        self._ending = False
        self.follow_orders: Ask[None] = self._loop(lambda: NEVER, lambda _: None)
        """Returns once the lane has ended."""
        self.next_to_publish = self._loop(machine.publish_due, self._next_to_publish, LONGEST_WAIT)
        self.next_for_database = self._database_loop(self._advance_due, self._next_for_database)
        telemetry.counted(opened.parked, machine.policy, 0)

    # --- for its loops ------------------------------------------------------------------------------

    def published(self, publish: Publish, failures: Sequence[Failure], seconds: float, now: float) -> None:
        """Handles the records because of which a batch was aborted; none if it was committed."""
        self.telemetry.published(now, publish.records, failures, seconds)
        if failures:
            self.machine.aborted(now, failures)
        else:
            self.telemetry.metrics.transactions += 1
            self.telemetry.metrics.paused_seconds += self.machine.published(now)

    def unpublished(self, error: Exception, seconds: float, now: float) -> None:
        """Handles that the outcome of a publication is unknown."""
        self.telemetry.failed_to_answer(now, error, seconds)
        raise error

    # --- with the lock ------------------------------------------------------------------------------

    def _look(self, now: float) -> None:
        machine, control = self.machine, self._control
        if control.draining:
            machine.drain()
        if not self._ending:
            drained = control.draining and machine.drained
            self._ends = drained and not self._torn
            if not self._ends and (drained or (machine.idle and now > self._expires)):
                self.drained = drained
                self._end()
                return
        machine.look(leading=now < control.lease_until)
        telemetry = self.telemetry
        telemetry.metrics.in_flight, telemetry.metrics.waiting = machine.in_flight, machine.waiting
        telemetry.gauge(now, machine.policy, machine.failed.blocked, machine.failed.topics)
        telemetry.no_longer_coalesced(machine.coalescing.quiet(now))

    def _settle(self, now: float, /) -> None:
        if self.pauses.has_changed():
            self.telemetry.hurry(now)
        failures, topics = self.machine.take_failed()
        if failures:
            self.telemetry.failed(failures, topics)
        if moves := self.machine.moves:
            self.machine.moves = []
            for batch, stage in moves:
                self.telemetry.add_event(BatchMoved(**_span(batch), stage=stage, lane=self.number))

    def _next_to_publish(self, now: float) -> Publish | None:
        publish = self.machine.next_to_publish(now)
        if publish is not None:
            self.telemetry.publishing(now, publish.records)
        return publish

    def _advance_due(self) -> float:
        if self._ends:
            return 0.0
        return min(self.machine.database_due(), self.telemetry.heartbeat_due(), self.pauses.due)

    def _next_for_database(self, now: float) -> Work:
        machine = self.machine
        if self._ends:
            self._ends, self._ending = False, True
            return Work("end", self._say_farewell)
        if min(self.telemetry.heartbeat_due(), self.pauses.due) <= now:
            return next_news(self, now, self._batches())
        command = machine.next_for_database(now)
        if command is None:
            raise TypeError("nothing was due at the database")
        if isinstance(command, Park):
            return Work("park", partial(self._park, command))
        if isinstance(command, Coalesce):
            return Work("coalesce", partial(self._coalesce, command))
        return Work("advance", partial(self._advance, command))

    def _batches(self) -> Mapping[str, object]:
        """Returns the present batches, for operators."""
        batches = self.machine.batches()
        return {"batches": [{**_span(batch), "stage": stage} for batch, stage in batches]}

    # --- what is done without the lock, and settled with it -----------------------------------------

    def _advance(self, advance: Advance, database: Database) -> Settle:
        finished, pending, limit, max_bytes, source, keys, topics = advance
        table = database.table()
        found = table.advance(self.fence, finished, pending, limit, max_bytes, source, keys, topics)
        found = database.kept.checked(table, finished, found)
        found = found._replace(records=database.topics.checked(found.records))
        return partial(self._advanced, source, found)

    def _advanced(self, source: int, advanced: Advanced, seconds: float, now: float) -> None:
        self.telemetry.measurements.step("advance", seconds, len(advanced.records))
        self.telemetry.marked(now, source, len(advanced.records))
        self.telemetry.metrics.purged += advanced.purged
        self.machine.advanced(now, advanced)

    def _coalesce(self, look: Coalesce, database: Database) -> Settle:
        return partial(self._coalesced, database.coalesce(self.fence, look))

    def _coalesced(self, found: Coalesced, seconds: float, now: float) -> None:
        self.telemetry.coalesced(found, seconds, is_first=self.machine.coalesced(now, found))

    def _park(self, park: Park, database: Database) -> Settle:
        changed = database.table().park(self.fence, None, park.poisons, park.ids)
        database.kept.parked([poison.id for poison in park.poisons], changed.rows)
        return partial(self._parked, park.poisons, changed.rows)

    def _parked(self, poisons: Sequence[Poison], keys: int, seconds: float, now: float) -> None:
        self.telemetry.measurements.step("park", seconds, len(poisons))
        self.machine.parked(now, keys)
        self.telemetry.parked(poisons, keys)

    def _say_farewell(self, database: Database) -> Settle:
        """Says at the fence that the lane uses transactions no more."""
        database.table().set_transactional(self.fence, None)
        return self._said_farewell

    def _said_farewell(self, _seconds: float, _now: float) -> None:
        self.drained = True
        self._end()


def _span(batch: Batch) -> dict[str, int]:
    return {"first": batch.runs[0][0], "last": batch.runs[-1][-1], "records": batch.rows}
