"""Deliberate bugs in what lanes promise beside order: that every key flows, and room, leases and handovers.

They mutate ``outbox_core.delivery`` and ``outbox_core.lanes``. Most take out the cure of a fault that was
found on real servers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from outbox_api import Deliveries, Failure
from outbox_core.control.protocol import LaneControl
from outbox_core.delivery.at_least_once import MarkPurgeReset
from outbox_core.delivery.commands import Advance, Mark, Park, Publish, Reset
from outbox_core.delivery.exactly_once import SelectPublishPurge
from outbox_core.delivery.scoreboard import Scoreboard, Taken
from outbox_core.lanes.batch_lane import ExactlyOnceLane
from outbox_core.lanes.lane import Loop
from outbox_core.lanes.record_lane import AtLeastOnceLane
from outbox_core.settings import Limits

from .mutant import BUSY, Mutant, breaks_batches, mutant, under
from .scenario import CROWDED, SIZED, Mode

# --- room for every key ----------------------------------------------------------------------------------


class UnboundedKey(MarkPurgeReset):
    """Lets one key take all the room."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.scoreboard = Scoreboard(self.scoreboard.held.policy, 10**9)


class NothingExcluded(Scoreboard):
    def excluded(self) -> tuple[str, ...]:
        return ()


class UnboundedRows(MarkPurgeReset):
    """Marks all rows of a full key, though they are of no use yet."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.scoreboard = NothingExcluded(self.scoreboard.held.policy, 1)


class AllTakenBack(MarkPurgeReset):
    """Takes back all failed keys at once, so that they are marked again before all others."""

    def _next_to_unhold(self, now: float) -> Reset | Park:
        self._retried_most = 10**9
        return super()._next_to_unhold(now)


# --- memory ----------------------------------------------------------------------------------------------


class UnboundedMark(MarkPurgeReset):
    """Asks for any number of bytes."""

    def next_mark(self, now: float) -> Mark:
        return super().next_mark(now)._replace(max_bytes=10**9)


class BytesIgnored(MarkPurgeReset):
    """Marks on however many bytes it holds."""

    def _room(self) -> int:
        size, self.scoreboard.bytes = self.scoreboard.bytes, 0
        try:
            return super()._room()
        finally:
            self.scoreboard.bytes = size


class UnboundedBatch(SelectPublishPurge):
    """Selects batches of any number of bytes."""

    def _advance(self, now: float, *, selects: bool, retries: bool) -> Advance:
        return super()._advance(now, selects=selects, retries=retries)._replace(max_bytes=10**9)


class BytesLeaked(Scoreboard):
    """Forgets to count down what is failed."""

    def hold(self, now: float, failures: Iterable[Failure]) -> bool:
        size = self.bytes
        try:
            return super().hold(now, failures)
        finally:
            self.bytes = size


class Leaking(MarkPurgeReset):
    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.scoreboard = BytesLeaked(self.scoreboard.held.policy, 1)


# --- what makes no message -------------------------------------------------------------------------------


class FaultySent(MarkPurgeReset):
    """Sends records that make no message."""

    def next_to_send(self) -> Taken:
        taken, first, others = super().next_to_send()
        sending = taken + [failure.record for failure in self._failed if failure.record.fault]
        self._failed = [failure for failure in self._failed if not failure.record.fault]
        return Taken(sending, first, others)


class FaultyPublished(SelectPublishPurge):
    """Publishes records that make no message."""

    def next_to_publish(self, now: float) -> Publish | None:
        if self._selected is not None:
            self._selected.records = [record._replace(fault=None) for record in self._selected.records]
        return super().next_to_publish(now)


# --- leases, turns and handovers -------------------------------------------------------------------------


class LateSender(AtLeastOnceLane):
    """Sends what has waited while the lease ended."""

    def may_work(self) -> bool:
        return not self.over


class SenderOfOld(AtLeastOnceLane):
    """Sends what has waited while the lane ended."""

    def may_work(self) -> bool:
        return self._clock() < self._control.lease_until


class Leaseless(AtLeastOnceLane):
    def __init__(self, *arguments: Any, control: LaneControl, **named: Any) -> None:
        super().__init__(*arguments, control=_Unleased(control), **named)


class _Unleased(LaneControl):
    """Orders without a lease."""

    def __init__(self, control: LaneControl) -> None:
        self._of = control

    def __getattribute__(self, name: str) -> Any:
        if name == "lease_until":
            return float("inf")
        return getattr(object.__getattribute__(self, "_of"), name)


class PurgeWithLease(SelectPublishPurge):
    """Purges only while leadership is vouched for, which it is not while it is handed over."""

    def database_due(self) -> float:
        return super().database_due() if self._leading else float("inf")


class HalfDrained(SelectPublishPurge):
    """Takes itself for drained while a published batch is not purged."""

    @property
    def drained(self) -> bool:
        finished, self._finished = self._finished, []
        try:
            return super().drained
        finally:
            self._finished = finished


class Sleepy(ExactlyOnceLane):
    """Looks for no orders of the leader while there is nothing else to do."""

    def _loop(self, due: Any, take: Any, _: float = 0.0) -> Any:
        return super()._loop(due, take, 5.0)


class Forgetful(AtLeastOnceLane):
    """Takes only the last of several reports."""

    def _reported(self, reports: Deliveries, now: float) -> None:
        super()._reported(Deliveries(reports.delivered[-1:], reports.failed[-1:]), now)


_tell = Loop.tell


def tell_nothing(loop: Loop, *, over: bool) -> None:
    """Lets a loop come too late."""
    if over:
        _tell(loop, over=over)


class Spinning(MarkPurgeReset):
    """Says that it may send while it drains, and has nothing."""

    @property
    def may_send(self) -> bool:
        return super().may_send or self._draining


SMALL: dict[str, Any] = {
    **BUSY,
    "limits": Limits(max_in_flight_records=8, send_buffer=8, mark_query_records=8, io_error_backoff=0.01),
}  # fmt: skip
SMALL_BYTES: dict[str, Any] = {**SMALL, **SIZED, "limits": replace(SMALL["limits"], max_lane_bytes=4000)}
MUCH: dict[str, Any] = {
    **SMALL_BYTES, "transactions_per_second": 100.0,
    "limits": Limits(max_in_flight_records=20, send_buffer=20, mark_query_records=8, max_lane_bytes=4000),
}  # fmt: skip
HOT_KEY: dict[str, Any] = {**CROWDED, "hot": 0.9, "transactions_per_second": 100.0, "flow_seconds": 1.0}
MANY_FAIL: dict[str, Any] = {**CROWDED, "front": 400, "transactions_per_second": 10.0, "flow_seconds": 1.0}


def records(
    name: str, says: str, invariants: str, fixed: dict[str, Any], faults: str, **parts: Any
) -> Mutant:
    kinds = tuple(faults.split(", ")) if faults else ()
    made = mutant(name, says, invariants, 40, Mode.AT_LEAST_ONCE, **parts)
    return replace(made, kinds=kinds, fixed={**fixed, "fault_kinds": kinds})


FLOW_MUTANTS: Sequence[Mutant] = (
    records("unbounded-key", "One key may take all the room of a lane.", "I13", HOT_KEY, "",
            machine=UnboundedKey),
    records("unbounded-rows", "Marks take rows of keys of which many wait already.", "I10", HOT_KEY, "",
            machine=UnboundedRows),
    records("all-taken-back", "All keys that fail are tried again before the others.", "I13", MANY_FAIL, "",
            machine=AllTakenBack),
    records("unbounded-mark", "A mark asks for any number of bytes.", "I10", SMALL_BYTES, "crashes",
            machine=UnboundedMark),
    records("bytes-ignored", "A lane marks on however many bytes it holds.", "I10",
            {**MUCH, "keys": 16, "sizes": (900,)}, "broker away", machine=BytesIgnored),
    records("bytes-leaked", "The bytes of a record that fails are counted for ever.", "I9 I10",
            {**SMALL, "refused": 0.2}, "crashes", machine=Leaking),
    under("crashes", **SIZED, limits=replace(BUSY["limits"], max_lane_bytes=4000), each=breaks_batches(
        "unbounded-batch", "A batch has any number of bytes.", "I10", batch_machine=UnboundedBatch)),
    records("faulty-sent", "A record that makes no message is sent.", "foreign",
            {**SMALL_BYTES, "refused_for_good": 0.1}, "crashes", machine=FaultySent),
    under("crashes", refused_for_good=0.1, each=breaks_batches(
        "faulty-published", "A record that makes no message is published.", "foreign",
        batch_machine=FaultyPublished)),
    records("late-sender", "What has waited to be sent while the lease ended is sent.", "I11",
             SMALL, "clogged clients, elector cut off", lane=LateSender),
    records("sender-of-old", "What has waited to be sent while the lane ended is sent.", "I11",
             SMALL, "clogged clients, lane restarts", lane=SenderOfOld),
    records("leaseless", "Nobody looks at the lease.", "I11", SMALL, "elector cut off, pauses",
            lane=Leaseless),
    under("handovers", each=breaks_batches(
        "purge-with-lease", "A batch is purged only while leadership is vouched for.", "I12",
        batch_machine=PurgeWithLease)),
    under("handovers", mode=Mode.SWITCHING, each=breaks_batches(
        "half-drained", "A lane ends its note before the last batch is purged.", "I6",
        batch_machine=HalfDrained)),
    under("handovers", limits=replace(BUSY["limits"], mark_backoff=3, max_mark_backoff=3),
          each=breaks_batches(
              "sleepy-loop", "A lane that waits for work looks for no orders.", "I12", batch_lane=Sleepy)),
    records("forgetful-loop", "Of several reports a lane takes only the last.", "I9 I10 error", SMALL,
            "crashes", lane=Forgetful),
    records("untold", "A loop is not told that another has work for it.", "I9 I12", SMALL, "crashes",
            patches={"outbox_core.lanes.lane.Loop.tell": tell_nothing}),
    records("spinning", "A loop is due though it has nothing to do.", "I14 error", SMALL, "handovers",
            machine=Spinning),
)  # fmt: skip
