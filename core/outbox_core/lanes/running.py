"""Opens one lane on its servers, and runs it for one epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from random import random
from uuid import uuid4

from outbox_api import Batch, ColumnIs, OutboxTable, PartitionedSender, RunSender, Sender

from outbox_core.control.protocol import LaneControl
from outbox_core.delivery.at_least_once import MarkPurgeReset
from outbox_core.delivery.exactly_once import SelectPublishPurge
from outbox_core.delivery.sources import ages
from outbox_core.lanes.batch_lane import LIFE_SECONDS, ExactlyOnceLane
from outbox_core.lanes.database import Database
from outbox_core.lanes.housekeeping import Housekeeping
from outbox_core.lanes.kept_rows import KeptRows
from outbox_core.lanes.lane import Threads
from outbox_core.lanes.loops import run_batches, run_records
from outbox_core.lanes.plan import Plan
from outbox_core.lanes.record_lane import AtLeastOnceLane
from outbox_core.lanes.recovery import enter_lane, open_lane, settled
from outbox_core.lanes.takeovers import clusters_of
from outbox_core.lanes.telemetry import Telemetry
from outbox_core.settings import Delivery
from outbox_core.tracing.provider import LaneTracing
from outbox_core.transforms.senders import TransformingSender


class LaneRun:
    """Runs one lane for one epoch, from connecting until it ends or fails."""

    def __init__(
        self,
        plan: Plan,
        number: int,
        control: LaneControl,
        telemetry: Telemetry,
        *,
        threads: Threads | None = None,
    ) -> None:
        self._telemetry = telemetry
        self._plan = plan
        self._number = number
        self._control = control
        self._threads = threads or Threads()
        self._dialect = plan.dialect.create()
        telemetry.unacknowledged.longest_call = self._dialect.longest_call()

    def run(self) -> None:
        """Harvests until ``control`` ends the lane, or it has reached its age limit.

        A drained lane leaves nothing in flight.
        """
        exactly_once = self._plan.delivery is Delivery.EXACTLY_ONCE
        try:
            self._run_batches() if exactly_once else self._run_records()
        finally:
            self._telemetry.settle()

    def _run_records(self) -> None:
        plan, number = self._plan, self._number
        eligible = self._eligible()
        entered, chain, table = enter_lane(plan, number, eligible)
        marking = self._database(eligible, table)
        try:
            opened: Sender = plan.publisher.create().open(f"{plan.outbox}.{number}")
            runs = isinstance(opened, RunSender) and not chain
            machine = MarkPurgeReset(
                plan.limits,
                plan.failures,
                uuid4,
                random,
                ages(eligible),
                run_records=plan.limits.max_run_records if runs else 1,
                coalesced=plan.coalesce,
            )
            lane = AtLeastOnceLane(
                machine,
                number,
                self._telemetry,
                entered,
                control=self._control,
                threads=self._threads,
                lanes=plan.lanes,
            )
            lane.partitioned = opened if isinstance(opened, PartitionedSender) else None
            if chain:
                opened = TransformingSender(opened, chain, plan.topics.refusal, lane.may_work)
            sender = self._tracing().sender(opened)
        except BaseException:
            marking.close()
            raise
        run_records(lane, sender, marking, self._database(), self._threads)

    def _run_batches(self) -> None:
        plan, number, metrics = self._plan, self._number, self._telemetry.metrics
        eligible = self._eligible()
        opened, untraced, table = open_lane(plan, number, eligible)
        sender = self._tracing().transactional(untraced)
        metrics.recovered += opened.recovered
        metrics.purged += opened.recovered
        if opened.doubt:
            self._telemetry.add_event(settled(number, opened.doubt))
        machine = SelectPublishPurge(
            plan.limits, plan.failures, random, opened.locked, ages(eligible), coalesced=plan.coalesce
        )
        lane = ExactlyOnceLane(
            machine,
            number,
            self._telemetry,
            opened,
            self._threads.clock() + LIFE_SECONDS,
            control=self._control,
            threads=self._threads,
            torn=untraced.torn,
        )
        lane.partitioned = untraced.below if isinstance(untraced.below, PartitionedSender) else None
        run_batches(lane, sender, self._database(eligible, table, opened.purged), self._threads)

    def _eligible(self) -> Sequence[ColumnIs]:
        """Returns the sources of rows, and has the telemetry know them."""
        plan = self._plan
        affinity = plan.affinity.create()
        eligible = affinity.eligible(plan.taken_over)
        clusters = clusters_of(eligible, affinity.origin())
        self._telemetry.takeovers.configure(clusters, plan.taken_over)
        return eligible

    def _tracing(self) -> LaneTracing:
        plan = self._plan
        return LaneTracing(plan.outbox, self._number, plan.token, plan.publisher.driver)

    def _about(self) -> Mapping[str, object]:
        """Returns what heartbeats say besides metrics; the first lane's speak for the leader, too."""
        return {**self._plan.about, **(self._control.about if self._number == 0 else {})}

    def _database(
        self,
        eligible: Sequence[ColumnIs] = (),
        table: OutboxTable | None = None,
        purged: Sequence[Batch] = (),
    ) -> Database:
        """Returns another connection, or this one. ``eligible`` matters to marks only."""
        plan = self._plan
        housekeeping = Housekeeping(self._number, plan.failures.keep_skipped, self._threads.clock())
        return Database(
            partial(self._dialect.connect, eligible),
            plan.topics,
            table,
            about=self._about,
            kept=KeptRows(purged),
            housekeeping=housekeeping,
        )
