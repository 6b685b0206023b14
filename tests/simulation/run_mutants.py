"""Deliberate bugs of runs: what is in flight of a key, what a producer makes of a refusal, what is purged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from outbox_api import MarkedRecord
from outbox_core.delivery.at_least_once import MarkPurgeReset
from outbox_core.delivery.scoreboard import Queue, Scoreboard, Taken
from outbox_core.settings import Limits

from . import statements
from .broker import Producer
from .mutant import Mutant, mutant, under
from .record_mutants import EarlyRelease
from .run_producer import Request, RunProducer
from .scenario import Mode
from .trail import TOPICS


class SentTogether(MarkPurgeReset):
    """Sends the first record of a run and those that follow it together."""

    def next_to_send(self) -> Taken:
        alone, first, _ = super().next_to_send()
        board = self.scoreboard
        for record in first:
            queue = board._busy[record.key]
            assert queue is not None
            board._follow(0.0, queue, record, 0, self._room_in_flight)
        return Taken(alone, first, board.take(0).others)


class GoesOn(RunProducer):
    """Fails what was refused, and sends on what is behind it."""

    def _append(self, request: Request) -> bool:
        before = self.over
        self.over = True
        try:
            appended = super()._append(request)
        finally:
            self.over = before
        if not appended:
            for record in request.records:
                self._broker.audit.entries[record.id].refusals -= 1
                if self._unreported.pop(record.id, None):
                    self._fail(record, "too large")
            self._out.pop(request.partition, None)
            self._pump(request.partition)
        return appended


class TakesAny(RunProducer):
    """Sends several records where no broker knows it."""

    def __init__(self, owner: Producer) -> None:
        super().__init__(owner)
        self._delivered = set(range(self._broker.partitions * len(TOPICS)))


class GoingOn(Producer):
    run_producer = GoesOn


class TakingAny(Producer):
    run_producer = TakesAny


class LongRuns(MarkPurgeReset):
    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.scoreboard._run_records = 10**9


class AnyTopic(Scoreboard):
    """Has records of any topic follow."""

    def _follow(self, now: float, queue: Queue, first: MarkedRecord, partition: int | None, room: int) -> int:
        moved = 0
        while room > moved and queue.records:
            alike = first._replace(topic=queue.records[0].topic)
            more = super()._follow(now, queue, alike, partition, room - moved)
            if not more:
                break
            moved += more
        return moved


class FreedByPart(Scoreboard):
    """Frees a key though others have locked some of its run."""

    def release(self, now: float, records: Iterable[MarkedRecord]) -> bool:
        records = list(records)
        for key, number in Counter(record.key for record in records).items():
            if queue := self._busy[key]:
                queue.unsettled = number
        return super().release(now, records)


class PurgesAround(statements.Purge):
    """Deletes what is behind a locked row of its key."""

    keeps_prefix = False


BOARD = "outbox_core.delivery.at_least_once.Scoreboard"
RUNS: dict[str, Any] = {
    "keys": 2, "transactions_per_second": 100.0, "seconds": 8.0, "faults_per_second": 0.5,
    "limits": Limits(max_in_flight_records=40, send_buffer=40, mark_query_records=20, io_error_backoff=0.01),
}  # fmt: skip


def _mutant(
    name: str, says: str, invariants: str, faults: str, fixed: dict[str, Any], **parts: Any
) -> Mutant:
    each = mutant(name, says, invariants, 40, Mode.AT_LEAST_ONCE, **parts)
    return under(faults, each, **{**RUNS, **fixed})


RUN_MUTANTS: Sequence[Mutant] = (
    _mutant("run-together", "A run is sent together with its first record.", "I3", "crashes", {},
            machine=SentTogether),
    _mutant("run-goes-on", "A producer sends on what is behind a refused record.", "I2", "crashes",
            {"refused": 0.1}, producer=GoingOn),
    _mutant("run-unknown", "A producer sends several records where no broker knows it.", "I2",
            "clogged clients", {"refused": 0.05, "unready": 0.9, "keys": 16}, producer=TakingAny),
    _mutant("run-early", "A key's next run begins before the purge of the one before is durable.", "I3",
            "crashes", {}, machine=EarlyRelease),
    _mutant("run-unbounded", "A run takes all records that wait.", "I3", "crashes",
            {"limits": replace(RUNS["limits"], max_run_records=3)}, machine=LongRuns),
    _mutant("run-across-topics", "Records of another topic follow in a run.", "I2", "crashes",
            {"topics": 2, "refused": 0.05, "keys": 8}, patches={BOARD: AnyTopic}),
    _mutant("run-freed-in-part", "A key is free though others have locked some of its run.", "I3 error",
            "crashes", {"touched": 0.9}, patches={BOARD: FreedByPart}),
    _mutant("run-purged-around", "A purge deletes what is behind a locked row of its key.", "I2", "crashes",
            {"touched": 0.9}, purge=PurgesAround),
)  # fmt: skip
