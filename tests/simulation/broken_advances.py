"""Simulated servers that break a rule of the statement that deletes batches and selects the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar
from weakref import WeakKeyDictionary

from outbox_api import Batch, Fence

from .advance import Advance
from .database import Change, Database
from .mutant import Mutant, breaks_batches, under
from .tables import Row


class VolatileDeletes(Advance):
    def write(self, deleted: list[Change]) -> None:
        self.database.logged(deleted, durable=False)


class UnfencedAdvance(Advance):
    share_lock = False

    def held(self) -> bool:
        return True


class AttemptlessAdvance(Advance):
    def held(self) -> bool:
        row = self.database.fence[self.right.lane]
        return row.token == self.right.token and row.lanes == self.right.lanes


class UnlockedAdvance(Advance):
    share_lock = False


class RangeDeletion(Advance):
    def published(self) -> list[Row]:
        rows, (lane, lanes) = self.database.rows, (self.right.lane, self.right.lanes)
        spans = [(batch.runs[0][0], batch.runs[-1][1]) for batch in self.finished]
        return [
            rows[number]
            for number in self.database.ids
            if any(first <= number <= last for first, last in spans) and rows[number].bucket % lanes == lane
        ]


class UndatedDeletion(Advance):
    def published(self) -> list[Row]:
        numbers = {number for batch in self.finished for number in batch.ids()}
        return [self.database.rows[number] for number in sorted(numbers) if number in self.database.rows]


class FinishedSelected(Advance):
    def leaves_out(self, row: Row) -> bool:
        return row.key in self.database.parked or self.is_of(row, self.pending)


class PendingSelected(Advance):
    def leaves_out(self, row: Row) -> bool:
        return row.key in self.database.parked or self.is_of(row, self.finished)


class ParkedSelected(Advance):
    def leaves_out(self, row: Row) -> bool:
        return self.is_of(row, self.finished) or self.is_of(row, self.pending)


class SelectionBehind(Advance):
    """Starts behind the last id that it has selected under the same fence."""

    last: ClassVar[WeakKeyDictionary[Database, dict[Fence, int]]] = WeakKeyDictionary()

    def choose(self) -> list[Row]:
        chosen = super().choose()
        if chosen:
            self.last.setdefault(self.database, {})[self.right] = chosen[-1].id
        return chosen

    def leaves_out(self, row: Row) -> bool:
        return super().leaves_out(row) or row.id <= self.last.get(self.database, {}).get(self.right, 0)


class SilentLocks(Advance):
    def left_batches(self) -> list[Batch]:
        return []


BROKEN_ADVANCES: Sequence[Mutant] = (
    under("database crashes", breaks_batches(
        "volatile-deletes", "An advance does not wait until its deletions are on the disk.", "I6 checkpoint",
        advance=VolatileDeletes)),
    breaks_batches("unfenced-advance", "An advance does not look at the fence.", "I4",
                   advance=UnfencedAdvance),
    under("frozen copies", workers=(1, 1), each=breaks_batches(
        "attemptless-advance", "An advance does not check the attempt.", "I4", advance=AttemptlessAdvance)),
    under("elector lies", slow=0.2, workers=(1, 1), each=breaks_batches(
        "unlocked-advance", "An advance checks the fence but does not hold it.", "I4",
        advance=UnlockedAdvance)),
    under("handovers", late_commits=0.4, each=breaks_batches(
        "range-deletion", "All rows from a batch's first to its last are deleted.", "I1 I4",
        advance=RangeDeletion)),
    under("lane restarts, crashes", ids_anew=True, transactions_per_second=10.0, each=breaks_batches(
        "undated-deletion", "Rows that have the id of a deleted one are deleted with its batch.", "I1 I4",
        advance=UndatedDeletion)),
    under("handovers", breaks_batches(
        "finished-selected", "What is being deleted is selected again.", "I6", advance=FinishedSelected)),
    under("slow commits", transactions_per_second=100.0, each=breaks_batches(
        "pending-batch-selected", "What is being published is selected again.", "I6",
        advance=PendingSelected)),
    under("handovers", refused_for_good=0.1, each=breaks_batches(
        "parked-selected", "Rows of parked keys are selected.", "parked", advance=ParkedSelected)),
    under("crashes", late_commits=0.4, each=breaks_batches(
        "selection-behind", "A selection starts behind the last id that was selected.", "I2 I9",
        advance=SelectionBehind)),
    under("handovers", touched=0.5, each=breaks_batches(
        "silent-locks", "An advance does not tell which rows it did not delete.", "I6 checkpoint",
        advance=SilentLocks)),
)  # fmt: skip
