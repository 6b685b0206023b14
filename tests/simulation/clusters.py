"""``python -m tests.simulation clusters`` or ``intake``: as many histories as asked for, or the mutants."""
# ruff: noqa: T201 - a program that prints

from __future__ import annotations

import argparse
import itertools
import os
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing import Pool

from . import cluster_runs, intake_runs

WORLDS = {"clusters": cluster_runs, "intake": intake_runs}
HISTORIES = 200
"""Histories that are run when nothing is said."""


def main(name: str) -> int:
    """Runs what the command line says; returns the exit code."""
    world = WORLDS[name]
    options = _options(name, [*world.MUTANTS])
    if options.mutant:
        return _hunt(name, [*world.MUTANTS] if options.mutant == "all" else [options.mutant])
    if options.seed is not None and options.histories is options.minutes is None:
        history = world.run(options.seed)
        print(history.message or f"seed {history.seed}: no violation, {dict(history.counts)}")
        return 1 if history.invariant else 0
    return _simulate(name, options)


def _simulate(name: str, options: argparse.Namespace) -> int:
    first = secrets.randbelow(1 << 40) if options.seed is None else options.seed
    print(f"seeds from {first}, {options.jobs} at a time", flush=True)
    steps, counts, failed = 0, Counter[str](), []
    tally = Counter[str]()
    with Pool(options.jobs) as pool:
        for history in pool.imap_unordered(WORLDS[name].run, _seeds(first, options, tally)):
            tally["histories"] += 1
            steps, counts = steps + history.steps, counts + history.counts
            if history.invariant:
                failed.append(history.seed)
                print(history.message, flush=True)
    print(f"{tally['histories']:,} histories, {steps:,} steps: {dict(counts)}")
    if failed:
        print("seeds that failed:", *failed)
    return 1 if failed else 0


def _seeds(first: int, options: argparse.Namespace, tally: Counter[str]) -> Iterator[int]:
    began = time.monotonic()
    histories = options.histories
    if histories is None and options.minutes is None:
        histories = HISTORIES
    for number in itertools.count():
        if histories is not None and number >= histories:
            return
        if options.minutes is not None and time.monotonic() - began >= options.minutes * 60:
            return
        # The pool takes seeds as fast as it can: no more may be out than will soon be done.
        while number - tally["histories"] > 8 * options.jobs:
            time.sleep(0.01)
        yield first + number


def _hunt(world: str, names: list[str]) -> int:
    survivors = 0
    for name in names:
        caught = WORLDS[world].hunt(name)
        survivors += caught is None
        by = f"{caught.invariant} with seed {caught.seed}" if caught else "NOTHING"
        print(f"{name:<20}{by:<20}{WORLDS[world].MUTANTS[name].says}", flush=True)
    print(f"{len(names) - survivors} of {len(names)} mutants caught")
    return 1 if survivors else 0


def _options(name: str, mutants: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m tests.simulation {name}", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first seed; alone: replay this one")
    parser.add_argument("--histories", type=int, help=f"how many; {HISTORIES} if nothing else is said")
    parser.add_argument("--minutes", type=float, help="for how long, about")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes; one for each core")
    parser.add_argument("--mutant", choices=["all", *mutants], metavar="NAME|all", help=", ".join(mutants))
    return parser.parse_args()
