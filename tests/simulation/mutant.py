"""What a mutant is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from outbox_api import MAX_CHECKPOINT
from outbox_core.settings import Limits

from .scenario import Mode, Parts

BUSY: Mapping[str, Any] = {
    "processes": 2, "lanes": (1, 1), "workers": (0, 0), "keys": 4, "seconds": 8.0,
    "transactions_per_second": 40.0, "faults_per_second": 5.0, "wall_clocks": False, "leases": False,
    "slow": 0.0, "lossy": 0.0, "refused": 0.0, "refused_for_good": 0.0, "touched": 0.0, "withdrawn": 0.0,
    "topics": 1, "ids_anew": False, "at_once": True, "dates": True, "torn": 0.0, "blind": 0.0,
    "repeated": 0.0, "verifies": True, "replaced": 0.0, "unready": 0.0, "characters": MAX_CHECKPOINT,
    "coalesced": (), "pauses": (),
    "limits": Limits(max_batch_records=8, io_error_backoff=0.01),
}  # fmt: skip
"""A small world in which much is published and little fails but by the faults that are named."""


@dataclass(frozen=True)
class Mutant:
    """One deliberate bug.

    Attributes:
        name: Its name on the command line.
        says: What it does wrong, in a sentence.
        invariants: By which invariants it may be caught; by any other does not count.
        budget: In how many histories it must be.
        parts: The world with the bug in it.
        first: The seed of the first of these.
        fixed: What of the scenario is not drawn: the bug shows seldom in another.
        kinds: The faults that may happen; none for all that concern the mode.
        mode: What harvesters deliver.
    """

    name: str
    says: str
    invariants: frozenset[str]
    budget: int
    parts: Parts
    first: int = 1
    fixed: Mapping[str, Any] = field(default_factory=dict)
    kinds: tuple[str, ...] = ()
    mode: Mode = Mode.AT_LEAST_ONCE


def mutant(
    name: str, says: str, invariants: str, budget: int, mode: Mode, *, first: int = 1, **parts: Any
) -> Mutant:
    """Returns a mutant that is a world with these parts, and shows in any scenario."""
    return Mutant(name, says, frozenset(invariants.split()), budget, Parts(**parts), first, mode=mode)


def breaks_batches(name: str, says: str, invariants: str, **parts: Any) -> Mutant:
    """Returns a mutant of exactly-once delivery."""
    return mutant(name, says, invariants, 40, Mode.EXACTLY_ONCE, **parts)


def breaks_switching(name: str, says: str, invariants: str, **parts: Any) -> Mutant:
    """Returns a mutant that shows where modes switch."""
    return mutant(name, says, invariants, 40, Mode.SWITCHING, **parts)


def under(faults: str, each: Mutant, mode: Mode | None = None, **fixed: Any) -> Mutant:
    """Returns a mutant that is hunted in a small world, under a few kinds of faults."""
    kinds = tuple(faults.split(", "))
    fixed = {**BUSY, "fault_kinds": kinds, **fixed}
    return replace(each, kinds=kinds, fixed=fixed, mode=mode or each.mode)
