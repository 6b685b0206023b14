"""Histories of several clusters, and the hunt for mutants."""

from __future__ import annotations

import traceback
from collections import Counter
from dataclasses import dataclass

from .cluster_mutants import MUTANTS, Mutant
from .cluster_world import ClusterWorld
from .trail import Violation


@dataclass(frozen=True, slots=True)
class History:
    """What came of one seed.

    Attributes:
        seed: The seed.
        steps: How many events ran.
        counts: What was done.
        invariant: Which invariant was broken; empty for none.
        message: How, and what was drawn.
    """

    seed: int
    steps: int
    counts: Counter[str]
    invariant: str = ""
    message: str = ""


def run(seed: int, mutant: Mutant | None = None) -> History:
    """Runs one history; the same arguments give the same one."""
    world = ClusterWorld(seed, mutant.parts, mutant.kinds, mutant.fixed) if mutant else ClusterWorld(seed)
    invariant = message = ""
    try:
        world.run()
    except Violation as violation:
        invariant, message = violation.invariant, str(violation)
    except Exception as error:  # noqa: BLE001 - a bug found, to be reported with its seed like any other
        invariant, message = "error", "".join(traceback.format_exception(error, limit=-4))
    if message:
        message = f"seed {seed} broke {message}\n{world.scenario}"
    return History(seed, world.steps, world.trail.counts, invariant, message)


def hunt(name: str) -> History | None:
    """Returns the first history in which a mutant is caught by one of its invariants, if there is one."""
    mutant = MUTANTS[name]
    for seed in range(mutant.budget):
        history = run(seed, mutant)
        if history.invariant in mutant.invariants.split():
            return history
    return None
