"""Deliberate bugs of exactly-once delivery: each breaks a rule of how batches are selected and published.

They mutate ``outbox_core.delivery.exactly_once`` and ``outbox_core.lanes.batch_lane``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from outbox_api import Advanced, Batch, Failure
from outbox_core.delivery import exactly_once
from outbox_core.delivery.checkpoint import encode
from outbox_core.delivery.commands import Advance, Publish
from outbox_core.delivery.exactly_once import SelectPublishPurge
from outbox_core.delivery.held import Held
from outbox_core.lanes.batch_lane import ExactlyOnceLane
from outbox_core.lanes.lane import Work

from .mutant import Mutant, breaks_batches, breaks_switching, under
from .scenario import CALM, CROWDED, Mode

# --- the lane ------------------------------------------------------------------------------------------


class Trusting(ExactlyOnceLane):
    def unpublished(self, error: Exception, seconds: float, now: float) -> None:
        self.machine.published(now)


class Pessimist(ExactlyOnceLane):
    def unpublished(self, error: Exception, seconds: float, now: float) -> None:
        self.machine.aborted(now, [])


class DeafToLostAdvances(ExactlyOnceLane):
    def failed(self, work: Work, error: Exception, seconds: float, now: float) -> None:
        if work.name == "advance":
            self.machine.advanced(now, Advanced(0, []))
        else:
            super().failed(work, error, seconds, now)


class EarlyFarewell(ExactlyOnceLane):
    def _look(self, now: float) -> None:
        super()._look(now)
        self._ends |= self._control.draining and not (self.over or self._ending)


# --- what the checkpoint names -------------------------------------------------------------------------


class ShortCheckpoint(SelectPublishPurge):
    def next_to_publish(self, now: float) -> Publish | None:
        publish = super().next_to_publish(now)
        if publish is None or self._publishing is None:
            return publish
        return publish._replace(checkpoint=encode([], self._publishing.batch))


class PurgingUnnamed(SelectPublishPurge):
    def _in_log(self) -> list[Batch]:
        return [*self._locked, *self._retrying, *self._finished]


class LockedUnnamed(SelectPublishPurge):
    def _in_log(self) -> list[Batch]:
        return [*self._retrying, *self._purging, *self._finished]


class RetriedUnnamed(SelectPublishPurge):
    def _in_log(self) -> list[Batch]:
        return [*self._locked, *self._purging, *self._finished]


class Overfull(SelectPublishPurge):
    """Publishes a batch though its checkpoint has too many characters."""

    def next_to_publish(self, now: float) -> Publish | None:
        with patch.object(exactly_once, "MAX_CHECKPOINT", 10**9):
            return super().next_to_publish(now)


class RestPublished(SelectPublishPurge):
    """Cuts a batch for the checkpoint, and publishes the rest of its records with it."""

    def advanced(self, now: float, result: Advanced) -> None:
        before = self._selected
        super().advanced(now, result)
        if self._selected is not None and self._selected is not before:
            self._selected.records = list(result.records)


# --- what is selected and deleted ----------------------------------------------------------------------


class PendingSelected(SelectPublishPurge):
    """Does not say which batch is being published."""

    def _advance(self, now: float, *, selects: bool, retries: bool) -> Advance:
        advance = super()._advance(now, selects=selects, retries=retries)
        return advance._replace(pending=[*self._locked, *self._finished])


class FinishedSelected(SelectPublishPurge):
    """Does not say which batches are in the log and are deleted after the selection."""

    def _advance(self, now: float, *, selects: bool, retries: bool) -> Advance:
        advance = super()._advance(now, selects=selects, retries=retries)
        return advance._replace(pending=[each for each in advance.pending if each not in self._finished])


class LockedSelected(SelectPublishPurge):
    """Does not say which rows are in the log and were locked."""

    def _advance(self, now: float, *, selects: bool, retries: bool) -> Advance:
        advance = super()._advance(now, selects=selects, retries=retries)
        return advance._replace(pending=[each for each in advance.pending if each not in self._locked])


class EarlyPurge(SelectPublishPurge):
    """Deletes a batch while it is being published."""

    def _advance(self, now: float, *, selects: bool, retries: bool) -> Advance:
        advance = super()._advance(now, selects=selects, retries=retries)
        return advance._replace(finished=[*advance.finished, *advance.pending])


class LockedForgotten(SelectPublishPurge):
    """Takes rows that others had locked for deleted."""

    def _purged(self, now: float, locked: Sequence[Batch]) -> None:
        super()._purged(now, [])


class LockedLeft(SelectPublishPurge):
    """Never tries again to delete rows that others had locked."""

    def _purged(self, now: float, locked: Sequence[Batch]) -> None:
        super()._purged(now, locked)
        self._locked_due = float("inf")


class LockedDrained(SelectPublishPurge):
    """Takes itself for drained while rows in the log are locked."""

    @property
    def drained(self) -> bool:
        return self.idle


# --- aborted transactions ------------------------------------------------------------------------------


class KeptBehind(SelectPublishPurge):
    """Publishes what was selected behind an aborted batch."""

    def _take_back(self, now: float, taken: Any, failures: Sequence[Failure]) -> None:
        behind = self._selected if self._selected is not taken else None
        super()._take_back(now, taken, failures)
        self._selected = behind


class SelectionKept(SelectPublishPurge):
    """Takes what an advance has selected behind an aborted batch."""

    def _take_back(self, now: float, taken: Any, failures: Sequence[Failure]) -> None:
        super()._take_back(now, taken, failures)
        self._abandon = False


class ParkedBefore(SelectPublishPurge):
    """Parks a key for any of its records that is refused, also where some before it are not published."""

    def _take_back(self, now: float, taken: Any, failures: Sequence[Failure]) -> None:
        culprits = {failure.record.key: failure.record.id for failure in failures}
        records = [record for record in taken.records if record.id >= culprits.get(record.key, 0)]
        super()._take_back(now, replace(taken, records=records), failures)


class StandingStill(SelectPublishPurge):
    """Has no room for keys that fail, so that the lane waits with each."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.failed.held = Held(0, self.policy.pause_after)


class GoingOnBehind(SelectPublishPurge):
    """Goes on with the records behind the one that failed, those of its key included."""

    def _take_back(self, now: float, taken: Any, failures: Sequence[Failure]) -> None:
        super()._take_back(now, taken, failures)
        culprits = {failure.record.id for failure in failures}
        rest = [record for record in taken.records if record.id not in culprits]
        batch = Batch.of([record.id for record in rest], taken.batch.newest)
        self._selected = replace(taken, batch=batch, records=rest) if rest else None


class PassingTail(SelectPublishPurge):
    """Parks a key, and goes on with the records behind the one that failed."""

    def _take_back(self, now: float, taken: Any, failures: Sequence[Failure]) -> None:
        super()._take_back(now, taken, failures)
        if self._park is not None:
            heads = {poison.id for poison in self._park.poisons}
            rest = [record for record in taken.records if record.id not in heads]
            batch = Batch.of([record.id for record in rest], taken.batch.newest)
            self._selected = replace(taken, batch=batch, records=rest) if rest else None


BATCH_MUTANTS: Sequence[Mutant] = (
    under("database crashes", keys=1, transactions_per_second=100.0, each=breaks_batches(
        "short-checkpoint", "A checkpoint names only the batch that it is published with.", "I6 checkpoint",
        batch_machine=ShortCheckpoint)),
    under("pauses, slow database", processes=1, lanes=(1,), workers=(1,), keys=1,
          transactions_per_second=100.0, each=breaks_batches(
        "purging-unnamed", "A checkpoint does not name what is being deleted.", "I6 checkpoint",
        batch_machine=PurgingUnnamed)),
    under("handovers", touched=0.5, each=breaks_batches(
        "locked-unnamed", "A checkpoint does not name rows that others have locked.", "I6 checkpoint",
        batch_machine=LockedUnnamed)),
    under("slow database", touched=0.5, transactions_per_second=100.0, each=breaks_batches(
        "retried-unnamed", "A checkpoint does not name locked rows while they are tried again.",
        "I6 checkpoint", batch_machine=RetriedUnnamed)),
    under("slow commits", touched=0.5, characters=90, transactions_per_second=100.0, each=breaks_batches(
        "overfull", "A batch is published though its checkpoint has no room for it.", "I10",
        batch_machine=Overfull)),
    under("broker away", characters=160, lanes=(4, 4), transactions_per_second=100.0, each=breaks_batches(
        "rest-published", "A batch is cut for the checkpoint, and the rest published with it.",
        "I6 checkpoint", batch_machine=RestPublished)),
    under("slow commits", transactions_per_second=100.0, each=breaks_batches(
        "pending-selected", "A selection does not leave out what is being published.", "I6",
        batch_machine=PendingSelected)),
    under("handovers", breaks_batches(
        "published-selected", "A selection does not leave out what is in the log and deleted after it.", "I6",
        batch_machine=FinishedSelected)),
    under("handovers", touched=0.5, each=breaks_batches(
        "locked-selected", "A selection does not leave out locked rows that are in the log.", "I6 kept",
        batch_machine=LockedSelected)),
    under("failing deliveries", transactions_per_second=100.0, each=breaks_batches(
        "early-purge", "A batch is deleted before it is known to be committed.", "I1 I8",
        batch_machine=EarlyPurge)),
    under("handovers", touched=0.5, each=breaks_batches(
        "locked-forgotten", "Rows that others had locked are taken for deleted.", "I6 checkpoint",
        batch_machine=LockedForgotten)),
    under("crashes", touched=0.5, each=breaks_batches(
        "locked-left", "Rows that others had locked are never deleted.", "I9 I10", batch_machine=LockedLeft)),
    under("handovers", mode=Mode.SWITCHING, touched=0.5, each=breaks_batches(
        "locked-drained", "A lane ends its note while locked rows are in the log.", "I6 checkpoint",
        batch_machine=LockedDrained)),
    breaks_batches("trusting-commit", "A commit of unknown outcome is taken for a success.", "I1 I8",
             batch_lane=Trusting),
    under("failing deliveries, broker crashes", torn=0.2, each=breaks_batches(
        "pessimistic-commit", "A commit of unknown outcome is taken for an abort.", "I6 checkpoint",
        batch_lane=Pessimist)),
    under("lossy network", breaks_batches(
        "deaf-to-lost-advances", "A lost reply to an advance is taken for an empty one.", "I6 checkpoint",
        batch_lane=DeafToLostAdvances)),
    breaks_batches("kept-behind", "What was selected behind an aborted batch is published.", "I2",
             batch_machine=KeptBehind),
    under("slow database", refused=0.1, each=breaks_batches(
        "selection-kept", "What was selected while a batch was aborted is published.", "I2",
        batch_machine=SelectionKept)),
    under("slow database", refused_for_good=0.05, each=breaks_batches(
        "parked-before", "A key is parked for a record that is not its first.", "parked",
        batch_machine=ParkedBefore)),
    under("slow database", refused_for_good=0.05, each=breaks_batches(
        "passing-tail", "A batch goes on without what is parked, and takes the tails along.", "I2",
        batch_machine=PassingTail)),
    under("slow database", refused=0.1, each=breaks_batches(
        "going-on-behind", "After an abort a lane goes on with what is behind the failed record of its key.",
        "I2", batch_machine=GoingOnBehind)),
    replace(
        breaks_batches("standing-still", "A lane stands still while it waits to try a record again.", "I13",
                 batch_machine=StandingStill),
        fixed={**CROWDED, **CALM, "front": 50, "transactions_per_second": 10.0}),
    under("handovers, late packets", breaks_switching(
        "early-farewell", "A lane that is to end takes its note back before it has settled.", "I6",
        batch_lane=EarlyFarewell)),
)  # fmt: skip
