"""Deliberate bugs: each breaks a rule that the guarantees rest on, and is caught by the invariant named."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import StringIO

from .batch_mutants import BATCH_MUTANTS
from .broken_servers import BROKEN_SERVERS, SELDOM
from .checkpoint_mutants import CHECKPOINT_MUTANTS
from .cluster_mutants import MUTANTS as CLUSTER_MUTANTS
from .coalescing_mutants import COALESCING_MUTANTS
from .doubt_mutants import DOUBT_MUTANTS
from .flow_mutants import FLOW_MUTANTS
from .intake_mutants import MUTANTS as INTAKE_MUTANTS
from .late_mutants import LATE_MUTANTS, SECOND_WALL
from .leadership_mutants import LEADERSHIP_MUTANTS
from .mutant import Mutant
from .pause_mutants import PAUSE_MUTANTS
from .record_mutants import RECORD_MUTANTS
from .run_mutants import RUN_MUTANTS
from .settled_mutants import SETTLED_MUTANTS
from .spark_mutants import SPARK_MUTANTS
from .takeover_mutants import TAKEOVER_MUTANTS
from .torn_mutants import TORN_MUTANTS
from .transformed import TRANSFORMED as WITH_TRANSFORMS
from .transformed import TRANSFORMED_MUTANTS

__all__ = ["BROKEN_SERVERS", "BY_NAME", "MUTANTS", "SELDOM", "TRANSFORMED", "Mutant", "listing"]

MUTANTS: Sequence[Mutant] = (
    *RECORD_MUTANTS,
    *RUN_MUTANTS,
    *BATCH_MUTANTS,
    *CHECKPOINT_MUTANTS,
    *TAKEOVER_MUTANTS,
    *TORN_MUTANTS,
    *LATE_MUTANTS,
    *DOUBT_MUTANTS,
    *SETTLED_MUTANTS,
    *FLOW_MUTANTS,
    *LEADERSHIP_MUTANTS,
    *SPARK_MUTANTS,
    *TRANSFORMED_MUTANTS,
    *COALESCING_MUTANTS,
    *PAUSE_MUTANTS,
)
"""Bugs in files that ship."""

TRANSFORMED = (*WITH_TRANSFORMS, SECOND_WALL)

BY_NAME = {mutant.name: mutant for mutant in (*MUTANTS, *BROKEN_SERVERS, *TRANSFORMED)}


def listing() -> str:
    """Returns all of them as CSV, with a head."""
    text = StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("breaks", "name", "what it does wrong", "caught by", "within"))
    for breaks, mutants in (("code", MUTANTS), ("a server", BROKEN_SERVERS)):
        rows.writerows(
            (breaks, each.name, each.says, " ".join(sorted(each.invariants)), each.budget) for each in mutants
        )
    for breaks, others in (("clusters", CLUSTER_MUTANTS), ("intake", INTAKE_MUTANTS)):
        for each in others.values():
            rows.writerow((breaks, each.name, each.says, each.invariants, each.budget))
    return text.getvalue()
