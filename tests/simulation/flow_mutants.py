"""Deliberate bugs in what lanes promise beside order: that every key flows, and room, leases and handovers.

They mutate ``outbox_core.delivery`` and ``outbox_core.lanes``. Most take out the cure of a fault that was
found on real servers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from outbox_api import Failure, MarkedRecord
from outbox_core.config.settings import Limits
from outbox_core.delivery.at_least_once import MarkPurgeReset
from outbox_core.delivery.commands import (
    Advance,
    BatchCommand,
    Mark,
    Park,
    Publish,
    Request,
    Reset,
)
from outbox_core.delivery.exactly_once import SelectPublishPurge
from outbox_core.delivery.scoreboard import Scoreboard
from outbox_core.lanes.lane import AtLeastOnceLane
from outbox_core.lanes.turn import Executors, Lane, Reply, SendGate, take_turn
from outbox_core.leadership.protocol import LaneControl

from .mutant import BUSY, Mutant, breaks_batches, mutant, under
from .scenario import CROWDED, SIZED, Mode

# --- room for every key ----------------------------------------------------------------------------------


class UnboundedKey(MarkPurgeReset):
    """Lets one key take all the room."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.scoreboard = Scoreboard(self.scoreboard.policy, 10**9)


class NothingExcluded(Scoreboard):
    def excluded(self) -> tuple[str, ...]:
        return ()


class UnboundedRows(MarkPurgeReset):
    """Marks all rows of a full key, though they are of no use yet."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.scoreboard = NothingExcluded(self.scoreboard.policy, 1)


class AllTakenBack(MarkPurgeReset):
    """Takes back all failed keys at once, so that they are marked again before all others."""

    def _next_to_unhold(self, now: float) -> Reset | Park:
        self._retried_most = 10**9
        return super()._next_to_unhold(now)


# --- memory ----------------------------------------------------------------------------------------------


class UnboundedMark(MarkPurgeReset):
    """Asks for any number of bytes."""

    def _next_mark_command(self, now: float) -> Mark | None:
        mark = super()._next_mark_command(now)
        return mark and replace(mark, max_bytes=10**9)


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
        return replace(super()._advance(now, selects=selects, retries=retries), max_bytes=10**9)


class BytesLeaked(Scoreboard):
    """Forgets to count down what is failed."""

    def hold(self, now: float, failures: Iterable[Failure]) -> bool:
        size = self.bytes
        try:
            return super().hold(now, failures)
        finally:
            self.bytes = size


class Leaking(MarkPurgeReset):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.scoreboard = BytesLeaked(self.scoreboard.policy, 1)


# --- what makes no message -------------------------------------------------------------------------------


class FaultySent(MarkPurgeReset):
    """Sends records that make no message."""

    def _next_to_send(self) -> list[MarkedRecord]:
        taken = super()._next_to_send()
        sending = taken + [failure.record for failure in self._failed if failure.record.fault]
        self._failed = [failure for failure in self._failed if not failure.record.fault]
        return sending


class FaultyPublished(SelectPublishPurge):
    """Publishes records that make no message."""

    def _next_to_publish(self, now: float) -> Publish | None:
        if self._selected is not None:
            self._selected.records = [record._replace(fault=None) for record in self._selected.records]
        return super()._next_to_publish(now)


# --- leases, turns and handovers -------------------------------------------------------------------------


class OpenGate(SendGate):
    """Sends what has waited while the lease ended."""

    def admit(self, records: list[MarkedRecord]) -> tuple[list[MarkedRecord], list[Failure]]:
        return ([], []) if self.closed else (records, [])


class GateOfOld(SendGate):
    """Sends what has waited while the lane ended."""

    def admit(self, records: list[MarkedRecord]) -> tuple[list[MarkedRecord], list[Failure]]:
        closed, self.closed = self.closed, False
        try:
            return super().admit(records)
        finally:
            self.closed = closed


class Leaseless(AtLeastOnceLane):
    def step(self, now: float, control: LaneControl) -> list[Request]:
        return super().step(now, replace(control, lease_until=float("inf")))


class PurgeWithLease(SelectPublishPurge):
    """Purges only while leadership is vouched for, which it is not while it is handed over."""

    def decide(self, now: float, leading: bool = True) -> list[BatchCommand]:
        return super().decide(now, leading) if leading else []


class HalfDrained(SelectPublishPurge):
    """Takes itself for drained while a published batch is not purged."""

    @property
    def drained(self) -> bool:
        finished, self._finished = self._finished, []
        try:
            return super().drained
        finally:
            self._finished = finished


def sleepy_turn(
    lane: Lane, control: LaneControl, clock: Any, executors: Executors, replies: Iterable[Reply]
) -> float | None:
    """Waits for replies only: an order of the leader is no reply."""
    patience = take_turn(lane, control, clock, executors, replies)
    return patience and 5.0


def forgetful_turn(
    lane: Lane, control: LaneControl, clock: Any, executors: Executors, replies: Iterable[Reply]
) -> float | None:
    """Lets the lane receive only the last of several replies."""
    return take_turn(lane, control, clock, executors, list(replies)[-1:])


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
             SMALL, "clogged clients, elector cut off", gate=OpenGate),
    records("sender-of-old", "What has waited to be sent while the lane ended is sent.", "I11",
             SMALL, "clogged clients, lane restarts", gate=GateOfOld),
    records("leaseless", "Nobody looks at the lease.", "I11", SMALL, "elector cut off, pauses",
            lane=Leaseless, gate=OpenGate),
    under("handovers", each=breaks_batches(
        "purge-with-lease", "A batch is purged only while leadership is vouched for.", "I12",
        batch_machine=PurgeWithLease)),
    under("handovers", mode=Mode.SWITCHING, each=breaks_batches(
        "half-drained", "A lane ends its note before the last batch is purged.", "I6",
        batch_machine=HalfDrained)),
    under("handovers", each=breaks_batches(
        "sleepy-turn", "A lane that waits for replies looks for no orders.", "I12", turn=sleepy_turn)),
    records("forgetful-turn", "Of several replies a lane receives only the last.", "I9 I10 error", SMALL,
            "crashes", turn=forgetful_turn),
)  # fmt: skip
