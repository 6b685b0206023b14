"""Deliberate bugs of coalescing: each deletes what somebody waits for, or has in his hands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outbox_api import Batch, DriverError, Outline
from outbox_core.delivery.coalescing import Coalesce, Coalesced
from outbox_core.delivery.commands import Advance, Park
from outbox_core.delivery.exactly_once import SelectPublishPurge
from outbox_core.lanes.batch_lane import ExactlyOnceLane
from outbox_core.lanes.lane import Work
from outbox_core.lanes.record_lane import AtLeastOnceLane
from outbox_core.settings import Limits

from .coalescing import ReadOutline, Supersede
from .database import FAILED
from .mutant import Mutant, mutant, under
from .scenario import Mode
from .tables import Row
from .trail import TOPICS

LOST = 0.2
"""Which part of the deletions arrives late."""
LATE_SECONDS = 0.3

# --- what is superseded --------------------------------------------------------------------------------


def _with_the_newest(look: Coalesce, outline: Outline) -> Batch:
    turned = outline._replace(rows=outline.rows[::-1])
    return Batch.of(sorted(_superseded(look, turned).ids()), outline.newest)


_superseded = Coalesce.superseded


def _across_topics(look: Coalesce, outline: Outline) -> Batch:
    return _superseded(look, outline._replace(rows=[row._replace(topic="") for row in outline.rows]))


# --- what an outline has -------------------------------------------------------------------------------


class MarkedToo(ReadOutline):
    def has(self, row: Row) -> bool:
        leader, row.leader = row.leader, None
        try:
            return super().has(row)
        finally:
            row.leader = leader


class ParkedToo(ReadOutline):
    def has(self, row: Row) -> bool:
        mine = row.bucket % self.right.lanes == self.right.lane and row.leader is None
        return mine and row.topic in self.topics


class EveryLane(ReadOutline):
    def has(self, row: Row) -> bool:
        return row.leader is None and row.key not in self.database.parked and row.topic in self.topics


# --- what a lane makes of it ---------------------------------------------------------------------------


class SelectedToo(SelectPublishPurge):
    def next_for_database(self, now: float) -> Advance | Coalesce | Park | None:
        command = super().next_for_database(now)
        return command._replace(after=0) if isinstance(command, Coalesce) else command


class Late(Supersede):
    """One whose caller may have given it up by the time at which it arrives."""

    def start(self) -> None:
        database = self.database
        if database.chance.random() < LOST:
            answer, self.answer = self.answer, lambda _: None
            answer(FAILED)
            database.scheduler.after(database.chance.random() * LATE_SECONDS, super().start)
        else:
            super().start()


class DeafToLostLooks(AtLeastOnceLane):
    def failed(self, work: Work, error: Exception, seconds: float, now: float) -> None:
        if work.name == "coalesce" and isinstance(error, DriverError):
            self.machine.coalesced(now, Coalesced(0, 0, 0))
        else:
            super().failed(work, error, seconds, now)


class DeafInBatches(ExactlyOnceLane):
    def failed(self, work: Work, error: Exception, seconds: float, now: float) -> None:
        if work.name == "coalesce" and isinstance(error, DriverError):
            self.machine.coalesced(now, Coalesced(0, 0, 0))
        else:
            super().failed(work, error, seconds, now)


_BACKLOG = {
    "coalesced": TOPICS, "transactions_per_second": 100.0, "late_commits": 0.1, "rollbacks": 0.05,
    "limits": Limits(
        max_in_flight_records=8, send_buffer=4, mark_query_records=5, max_batch_records=8,
        io_error_backoff=0.01,
    ),
}  # fmt: skip


def _mutant(name: str, says: str, mode: Mode, faults: str, fixed: Any = (), **parts: Any) -> Mutant:
    return under(faults, mutant(name, says, "coalesced", 40, mode, **parts), **{**_BACKLOG, **dict(fixed)})


_ONCE, _LEAST = Mode.EXACTLY_ONCE, Mode.AT_LEAST_ONCE
_SUPERSEDED = "outbox_core.delivery.coalescing.Coalesce.superseded"

COALESCING_MUTANTS: Sequence[Mutant] = (
    _mutant("newest-superseded", "The newest record of a key is deleted, the oldest stays.", _LEAST,
            "broker away", patches={_SUPERSEDED: _with_the_newest}),
    _mutant("across-topics", "A record of one topic supersedes those of another.", _LEAST,
            "broker away", {"topics": 2}, patches={_SUPERSEDED: _across_topics}),
    _mutant("marked-superseded", "Records that are marked are superseded.", _LEAST,
            "broker away", outline=MarkedToo),
    _mutant("parked-superseded", "Records of parked keys are superseded.", _ONCE,
            "broker away", {"refused_for_good": 0.05}, outline=ParkedToo),
    _mutant("any-lane-superseded", "Records of other lanes are superseded.", _LEAST,
            "broker away", {"lanes": (4, 4)}, outline=EveryLane),
    _mutant("selected-superseded", "Records that are being published are superseded.", _ONCE,
            "broker away", batch_machine=SelectedToo),
    _mutant("deaf-to-lost-looks", "A lost reply to a deletion is taken for an empty one.", _LEAST,
            "broker away", lane=DeafToLostLooks, supersede=Late),
    _mutant("deaf-in-batches", "The same in exactly-once delivery.", _ONCE,
            "broker away", batch_lane=DeafInBatches, supersede=Late),
)  # fmt: skip
