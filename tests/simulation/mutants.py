"""Deliberate bugs: each breaks a rule that the guarantees rest on, and is caught by the invariant named."""

from __future__ import annotations

from collections.abc import Sequence

from .batch_mutants import BATCH_MUTANTS
from .broken_servers import BROKEN_SERVERS, SELDOM
from .checkpoint_mutants import CHECKPOINT_MUTANTS
from .doubt_mutants import DOUBT_MUTANTS
from .flow_mutants import FLOW_MUTANTS
from .leadership_mutants import LEADERSHIP_MUTANTS
from .mutant import Mutant
from .record_mutants import RECORD_MUTANTS
from .settled_mutants import SETTLED_MUTANTS
from .takeover_mutants import TAKEOVER_MUTANTS
from .torn_mutants import TORN_MUTANTS

__all__ = ["BROKEN_SERVERS", "BY_NAME", "MUTANTS", "SELDOM", "Mutant"]

MUTANTS: Sequence[Mutant] = (
    *RECORD_MUTANTS,
    *BATCH_MUTANTS,
    *CHECKPOINT_MUTANTS,
    *TAKEOVER_MUTANTS,
    *TORN_MUTANTS,
    *DOUBT_MUTANTS,
    *SETTLED_MUTANTS,
    *FLOW_MUTANTS,
    *LEADERSHIP_MUTANTS,
)
"""Bugs in files that ship."""

BY_NAME = {mutant.name: mutant for mutant in (*MUTANTS, *BROKEN_SERVERS)}
