"""Deliberate bugs of exactly-once delivery: each breaks a rule of its protocol."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from outbox_core.config.settings import Limits
from outbox_core.delivery.commands import Advance as AdvanceCommand
from outbox_core.delivery.commands import Answer, EndTransactions, Publish, Request
from outbox_core.delivery.commands import Park as ParkCommand
from outbox_core.delivery.exactly_once import TransactionalMarkPurge
from outbox_core.lanes.lane import ExactlyOnceLane
from outbox_core.lanes.turn import Reply
from outbox_core.leadership.protocol import LaneControl
from outbox_sdk import Failure

from .advance import Advance
from .mutant import Mutant, mutant
from .scenario import PLACES, TABLES, Mode
from .tables import Row
from .takeover_mutants import (
    CheckpointIgnored,
    EarlyEnd,
    EarlyReader,
    FirstNoteOnly,
    Impatient,
    LateNote,
    MissingCheckpointTrusted,
    NameOfOnesOwn,
    OwnName,
    OwnPlace,
    PurgedOnce,
    PurgedWhereNamed,
    RawName,
    SameLanesOnly,
    SameModeOnly,
    Silent,
    UnopenedFormer,
    WipedCheckpoint,
    early_look,
)

# --- the database side ---------------------------------------------------------------------------------


class CutShort(Advance):
    """No bug: the database deletes one row at a time."""

    def published(self) -> list[Row]:
        return super().published()[:1]


# --- the lane ------------------------------------------------------------------------------------------


class Trusting(ExactlyOnceLane):
    def receive(self, now: float, reply: Reply) -> None:
        if isinstance(reply, Answer) and isinstance(reply.request, Publish):
            reply = replace(reply, error=None)
        super().receive(now, reply)


class Pessimist(ExactlyOnceLane):
    def receive(self, now: float, reply: Reply) -> None:
        if isinstance(reply, Answer) and isinstance(reply.request, Publish) and reply.error:
            self.machine.aborted(now, [])
        else:
            super().receive(now, reply)


class EarlyFarewell(ExactlyOnceLane):
    def step(self, now: float, control: LaneControl) -> list[Request]:
        if control.draining and not self._ending:
            self._ending = True
            return [EndTransactions()]
        return super().step(now, control)


# --- the state machine ---------------------------------------------------------------------------------


class ShortCheckpoint(TransactionalMarkPurge):
    def _next_to_publish(self, now: float) -> Publish | None:
        publish = super()._next_to_publish(now)
        return publish and replace(publish, checkpoint=publish.checkpoint[-1:])


class Credulous(TransactionalMarkPurge):
    def _purged(self, rows: int) -> None:
        super()._purged(max(rows, sum(self._purging.values())))


class ReusedName(TransactionalMarkPurge):
    def _take_back(self, now: float, marked: Any, failures: Sequence[Failure]) -> None:
        super()._take_back(now, marked, failures)
        fresh = self._new_leader_id

        def reused() -> Any:
            self._new_leader_id = fresh
            return marked.batch.leader_id

        self._new_leader_id = reused


class Hurried(TransactionalMarkPurge):
    """Hands the next batch to the producer while the one before is not committed."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._ahead: deque[Any] = deque()

    def _next_to_publish(self, now: float) -> Publish | None:
        former, self._publishing = self._publishing, None
        publish = super()._next_to_publish(now)
        if publish is None:
            self._publishing = former
        elif former is not None:
            self._ahead.append(former)
            publish.checkpoint[-1:-1] = [each.batch for each in self._ahead]
        return publish

    def _next_for_database(self, now: float) -> AdvanceCommand | ParkCommand | None:
        command = super()._next_for_database(now)
        if isinstance(command, AdvanceCommand):
            command.pending.extend(each.batch.leader_id for each in self._ahead)
        return command

    def _take_published(self) -> Any:
        return self._ahead.popleft() if self._ahead else super()._take_published()


class KeptBehind(TransactionalMarkPurge):
    """Publishes what was marked behind an aborted batch."""

    def _take_back(self, now: float, marked: Any, failures: Sequence[Failure]) -> None:
        behind = self._marked if self._marked is not marked else None
        super()._take_back(now, marked, failures)
        self._marked, self._abandon = behind, False


class ParkedBefore(TransactionalMarkPurge):
    """Parks a key for any of its records that is refused, also where some before it are not published."""

    def _take_back(self, now: float, marked: Any, failures: Sequence[Failure]) -> None:
        culprits = {failure.record.key: failure.record.id for failure in failures}
        records = [record for record in marked.records if record.id >= culprits.get(record.key, 0)]
        super()._take_back(now, replace(marked, records=records), failures)


class PassingTail(TransactionalMarkPurge):
    def _take_back(self, now: float, marked: Any, failures: Sequence[Failure]) -> None:
        super()._take_back(now, marked, failures)
        if self._park is not None:
            heads = {poison.id for poison in self._park.poisons}
            rest = [record for record in marked.records if record.id not in heads]
            self._park = replace(self._park, ids=sorted(heads))
            self._marked = replace(marked, records=rest) if rest else None


BUSY: Mapping[str, Any] = {
    "processes": 2, "lanes": (1, 1), "workers": (0, 0), "keys": 4, "seconds": 8.0,
    "transactions_per_second": 40.0, "faults_per_second": 5.0, "wall_clocks": False,
    "slow": 0.0, "lossy": 0.0, "refused": 0.0, "refused_for_good": 0.0,
    "limits": Limits(max_batch_records=8, io_error_backoff=0.01),
}  # fmt: skip
"""A small world in which much is published and little fails but by the faults that are named."""
STALE: Mapping[str, Any] = {
    "places": PLACES, "processes": 3, "lanes": (1, 1, 1), "workers": (1, 1, 1), "lane_seconds": 0.1,
    "transactions_per_second": 80.0, "faults_per_second": 20.0, "slow": 0.1,
}  # fmt: skip
"""One in which lanes begin so often that some of them has read a note that is no longer true."""


def breaks_batches(name: str, says: str, invariants: str, **parts: Any) -> Mutant:
    return mutant(name, says, invariants, 40, Mode.EXACTLY_ONCE, **parts)


def breaks_switching(name: str, says: str, invariants: str, **parts: Any) -> Mutant:
    return mutant(name, says, invariants, 40, Mode.SWITCHING, **parts)


def under(faults: str, each: Mutant, mode: Mode | None = None, **fixed: Any) -> Mutant:
    """Returns a mutant that is hunted in a small world, under a few kinds of faults."""
    kinds = tuple(faults.split(", "))
    fixed = {**BUSY, "fault_kinds": kinds, **fixed}
    return replace(each, kinds=kinds, fixed=fixed, mode=mode or each.mode)


BATCH_MUTANTS: Sequence[Mutant] = (
    under("elector lies, frozen copies", workers=(1, 1), each=breaks_batches(
        "unfenced-producer", "Opening a lane's transactions does not fence its former producer.", "I6",
        recovery=NameOfOnesOwn)),
    under("elector lies, frozen copies", workers=(1, 1), each=breaks_batches(
        "early-checkpoint", "The checkpoint is read before the former producer is fenced.", "I6",
        recovery=EarlyReader)),
    under("database crashes, lossy network", slow=0.05, each=breaks_batches(
        "wiped-checkpoint", "The checkpoint is emptied before what it names is purged.", "I6",
        recovery=WipedCheckpoint)),
    breaks_batches("ignored-checkpoint", "What the checkpoint names is not purged.", "I6",
             recovery=CheckpointIgnored),
    under("forgotten checkpoints, database crashes", breaks_batches(
        "trusted-absence", "A checkpoint that is missing is taken for an empty one.", "I6",
        recovery=MissingCheckpointTrusted)),
    under("handovers, elector lies, crashes", places=PLACES, each=breaks_batches(
        "own-place", "The checkpoint is read at the lane's own place, not where it is noted.", "I6",
        recovery=OwnPlace)),
    under("handovers, elector lies, crashes", tables=TABLES, each=breaks_batches(
        "own-name", "The former sender is left alone where its name was another.", "I6",
        recovery=OwnName)),
    under("handovers, elector lies, crashes", breaks_batches(
        "raw-name", "A lane is named as the configuration spells the table, whatever is noted.", "I6",
        recovery=RawName)),
    under("elector lies, frozen copies", tables=TABLES, workers=(1, 1), each=breaks_batches(
        "unopened-former", "The checkpoint of a former sender is read while that may still publish.", "I6",
        recovery=UnopenedFormer)),
    under("handovers, crashes", places=PLACES, each=breaks_batches(
        "first-note-only", "A change of name or place is not noted.", "I6", recovery=FirstNoteOnly)),
    under("frozen recoveries, elector lies, slow database", **STALE, each=breaks_batches(
        "unfenced-checkpoint", "An empty checkpoint is written without a look at the fence.", "I6",
        first=50, recovery=PurgedWhereNamed)),
    under("database crashes, crashes", breaks_batches(
        "purged-once", "A lane that begins takes a purge that was cut short for complete.", "I6",
        advance=CutShort, recovery=PurgedOnce)),
    under("database crashes", keys=1, transactions_per_second=100.0, each=breaks_batches(
        "short-checkpoint", "A checkpoint names only the batch that it is published with.", "I6",
        batch_machine=ShortCheckpoint)),
    breaks_batches("credulous-purge", "A deletion that was cut short is taken for complete.", "I6",
             advance=CutShort, batch_machine=Credulous),
    breaks_batches("reused-name", "After an abort the next batch has the same name.", "I1 I2 I6 I9",
             batch_machine=ReusedName),
    breaks_batches("trusting-commit", "A commit of unknown outcome is taken for a success.", "I1 I8",
             batch_lane=Trusting),
    under("failing deliveries, broker crashes", breaks_batches(
        "pessimistic-commit", "A commit of unknown outcome is taken for an abort.", "I6", first=5,
        batch_lane=Pessimist)),
    breaks_batches("hurried", "The next batch is published before the former is known to be committed.",
             "I1 I2", batch_machine=Hurried),
    breaks_batches("kept-behind", "What was marked behind an aborted batch is published.", "I2",
             batch_machine=KeptBehind),
    under("slow database", refused_for_good=0.05, each=breaks_batches(
        "parked-before", "A key is parked for a record that is not its first.", "parked",
        batch_machine=ParkedBefore)),
    under("slow database", refused_for_good=0.05, each=breaks_batches(
        "passing-tail", "A batch goes on without what is parked, and takes the tails along.", "I2",
        batch_machine=PassingTail)),
    under("elector lies", lanes=(4, 1), each=breaks_batches(
        "unsettled-lanes", "A leader with another number of lanes settles nothing.", "I6",
        recovery=SameLanesOnly)),
    breaks_switching("unsettled-mode", "A leader of at-least-once delivery settles nothing.", "I6",
               recovery=SameModeOnly),
    under("elector lies, slow database", lanes=(4, 1), each=breaks_switching(
        "impatient", "Lanes begin while their leader settles the former ones.", "I6", recovery=Impatient)),
    under("elector lies, crashes", breaks_switching(
        "silent", "A lane does not note that it publishes in transactions.", "I6", recovery=Silent)),
    under("late network, elector lies", breaks_switching(
        "late-note", "A lane publishes before it has noted that it does.", "I6", recovery=LateNote)),
    under("handovers, late packets", breaks_switching(
        "early-farewell", "A lane that is to end takes its note back before it has settled.", "I6",
        batch_lane=EarlyFarewell)),
    under("crashes, elector lies", lanes=(4, 1), lossy=0.2, each=breaks_batches(
        "early-end", "The note of a former lane is ended before its rows are purged.", "I6",
        recovery=EarlyEnd)),
    under("elector lies", lanes=(4, 1), slow=0.2, each=breaks_switching(
        "early-look", "A leader reads the notes of former lanes before it raises the fence.", "I6",
        take_over=early_look)),
)  # fmt: skip
