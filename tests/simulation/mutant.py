"""What a mutant is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .scenario import Mode, Parts


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
