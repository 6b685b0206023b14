"""Deliberate bugs: each breaks a rule that the guarantees rest on, and is caught by the invariant named."""

from __future__ import annotations

from collections.abc import Sequence

from .batch_mutants import BATCH_MUTANTS
from .leadership_mutants import LEADERSHIP_MUTANTS
from .mutant import Mutant
from .record_mutants import RECORD_MUTANTS

__all__ = ["BY_NAME", "MUTANTS", "Mutant"]

MUTANTS: Sequence[Mutant] = (*RECORD_MUTANTS, *BATCH_MUTANTS, *LEADERSHIP_MUTANTS)

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
