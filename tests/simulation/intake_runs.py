"""Histories of an intake, and the hunt for mutants."""

from __future__ import annotations

import logging
import traceback

from .cluster_runs import History
from .intake_mutants import MUTANTS, Mutant
from .intake_world import IntakeWorld
from .trail import Violation

SHOWN = 30
"""Lines of what happened that a report of a failure shows."""


def run(seed: int, mutant: Mutant | None = None) -> History:
    """Runs one history; the same arguments give the same one."""
    world = IntakeWorld(seed, mutant.parts, mutant.kinds, mutant.fixed) if mutant else IntakeWorld(seed)
    invariant = message = ""
    logging.getLogger("outbox").setLevel(logging.CRITICAL)
    try:
        world.run()
    except Violation as violation:
        invariant, message = violation.invariant, str(violation)
    except Exception as error:  # noqa: BLE001 - a bug found, to be reported with its seed like any other
        invariant, message = "error", "".join(traceback.format_exception(error, limit=-4))
    finally:
        logging.getLogger("outbox").setLevel(logging.NOTSET)
    if message:
        told = "\n".join(world.trail[-SHOWN:])
        message = f"{told}\nseed {seed} broke {message}\n{world.scenario}"
    return History(seed, world.steps, world.counts, invariant, message)


def hunt(name: str) -> History | None:
    """Returns the first history in which a mutant is caught by one of its invariants, if there is one."""
    mutant = MUTANTS[name]
    histories = (run(seed, mutant) for seed in range(mutant.budget))
    return next((each for each in histories if each.invariant in mutant.invariants.split()), None)
