"""Deliberate bugs in from which id marks and selections start.

They mutate ``outbox_postgres.settled``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from outbox_api import Batch
from outbox_postgres.settled import Settled

from .mutant import Mutant, breaks_batches, mutant, under
from .scenario import Mode


class KeptStart(Settled):
    def released(self) -> None:
        """Takes no note of it."""


class ForgottenKeys(Settled):
    def begin(
        self, claimant: object, left_out: Collection[Batch] = (), keys: frozenset[str] = frozenset()
    ) -> int:
        return super().begin(claimant, left_out)


class AbandonedBehind(Settled):
    def begin(
        self, claimant: object, left_out: Collection[Batch] = (), keys: frozenset[str] = frozenset()
    ) -> int:
        return super().begin(claimant, (*left_out, *self._behind), keys)


class BlindHorizon(Settled):
    def listed(self, newest: int | None, holders: Collection[str], *, prepared: bool) -> None:
        super().listed(newest, (), prepared=prepared)


def _records(name: str, says: str, settled: type[Settled]) -> Mutant:
    return mutant(name, says, "I2 I9", 40, Mode.AT_LEAST_ONCE, settled=settled)


SETTLED_MUTANTS: Sequence[Mutant] = (
    _records("kept-start", "The low-water start is kept after a release.", KeptStart),
    _records("forgotten-keys", "Rows of a key that was excluded are taken for settled.", ForgottenKeys),
    _records("blind-horizon", "The horizon passes open transactions.", BlindHorizon),
    under("broker away", refused=0.1, each=breaks_batches(
        "abandoned-behind", "Rows of an abandoned batch are taken for settled.", "I2 I9",
        settled=AbandonedBehind)),
    under("broker away", late_commits=0.4, each=breaks_batches(
        "blind-selection", "The horizon of a selection passes open transactions.", "I2 I9",
        settled=BlindHorizon)),
)  # fmt: skip
