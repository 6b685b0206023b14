"""``python -m tests.simulation``: as many histories as asked for, or the mutants.

``python -m tests.simulation clusters`` does the same for several clusters, ``… intake`` for rows of another
table that are moved into an outbox; both have options of their own.
"""
# ruff: noqa: T201 - a program that prints

from __future__ import annotations

import argparse
import itertools
import os
import secrets
import sys
import time
from collections.abc import Iterator, Sequence

from .clusters import WORLDS
from .clusters import main as simulate_world
from .faults import EVERY_FAULT
from .mutants import BROKEN_SERVERS, BY_NAME, MUTANTS, Mutant, listing
from .runs import Tally, hunts, lines, many, report, run
from .scenario import Mode

HISTORIES = 200
"""Histories that are run when nothing is said."""
SECONDS_BETWEEN_LINES = 5.0
MANY = {"all": MUTANTS, "servers": BROKEN_SERVERS}
REPORTED = 3
"""Failures told at length; of more only the seeds."""


def main() -> int:
    if sys.argv[1:2] and sys.argv[1] in WORLDS:
        return simulate_world(sys.argv.pop(1))
    options = _options()
    kinds = options.only or None
    mutant = BY_NAME.get(options.mutant)
    if options.list or options.trace:
        history = lines(options.seed or 0, mutant, kinds, options.mode or Mode.AT_LEAST_ONCE)
        for line in listing().splitlines() if options.list else history:
            print(line)
        return 0
    if options.mutant in MANY:
        return _hunt([each.name for each in MANY[options.mutant]], options.jobs, options.seed)
    if mutant and options.seed is None:
        return _hunt([mutant.name], 1, None)
    if mutant or _is_replay(options):
        return _replay(options, mutant, kinds)
    return _simulate(options, kinds)


def _replay(options: argparse.Namespace, mutant: Mutant | None, kinds: Sequence[str] | None) -> int:
    failed = 0
    for mode in [options.mode] if options.mode or mutant else Mode:
        history = run(options.seed, mutant, kinds, mode)
        failed += bool(history.invariant)
        where = f"seed {history.seed}, {history.mode}"
        print(report(history, mutant, kinds) if history.invariant else f"{where}: no violation")
    return 1 if failed else 0


def _simulate(options: argparse.Namespace, kinds: Sequence[str] | None) -> int:
    first = secrets.randbelow(1 << 40) if options.seed is None else options.seed
    print(f"seeds from {first}, {options.jobs} at a time", flush=True)
    tally, began = Tally(), time.monotonic()
    modes = {mode: Tally() for mode in ([options.mode] if options.mode else Mode)}
    told = began
    for history in many(_seeds(first, list(modes), options, tally, began), options.jobs, kinds):
        for each in (tally, modes[history.mode]):
            each.take(history)
            each.seconds = time.monotonic() - began
        if history.invariant and len(tally.failed) <= REPORTED:
            print(report(history, None, kinds), flush=True)
        if time.monotonic() - told > SECONDS_BETWEEN_LINES:
            told = time.monotonic()
            rate = tally.steps / tally.seconds
            print(f"  {tally.histories:,} histories, {tally.steps:,} steps, {rate:,.0f} a second", flush=True)
    for mode, each in modes.items():
        print(f"\n{mode}\n{each.table()}")
    if tally.failed:
        failed = (f"{each.seed} ({each.mode}, {each.invariant})" for each in tally.failed)
        print("seeds that failed:", *failed)
    return 1 if tally.failed else 0


def _seeds(
    first: int, modes: Sequence[Mode], options: argparse.Namespace, tally: Tally, began: float
) -> Iterator[tuple[int, Mode]]:
    histories = options.histories
    if histories is None and options.minutes is None and options.steps is None:
        histories = HISTORIES
    for number in itertools.count():
        if histories is not None and number >= histories:
            return
        if options.minutes is not None and time.monotonic() - began >= options.minutes * 60:
            return
        if options.steps is not None and tally.steps >= options.steps:
            return
        # The pool takes work as fast as it can: no more may be out than will soon be done.
        while number - tally.histories > 8 * options.jobs:
            time.sleep(0.01)
        yield first + number // len(modes), modes[number % len(modes)]


def _hunt(names: list[str], jobs: int, first: int | None) -> int:
    survivors = 0
    print(f"{'mutant':<22}{'caught by':<10}{'seeds':>6}{'budget':>8}{'seconds':>9}  what it does wrong")
    for found in hunts(names, jobs, first):
        mutant = BY_NAME[found.name]
        survivors += found.caught is None
        by = found.caught.invariant if found.caught else "NOTHING"
        print(
            f"{found.name:<22}{by:<10}{found.seeds:>6}{mutant.budget:>8}{found.seconds:>9.1f}  {mutant.says}",
            flush=True,
        )
        if found.others:
            print(f"{'':<22}on the way: {dict(found.others)}", flush=True)
    print(f"{len(names) - survivors} of {len(names)} mutants caught")
    return 1 if survivors else 0


def _is_replay(options: argparse.Namespace) -> bool:
    amounts = (options.histories, options.minutes, options.steps)
    return options.seed is not None and all(amount is None for amount in amounts)


def _kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(text.split(","))
    if unknown := [kind for kind in kinds if kind not in EVERY_FAULT]:
        raise argparse.ArgumentTypeError(
            f"no such fault: {', '.join(unknown)}; there are {', '.join(EVERY_FAULT)}"
        )
    return kinds


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first seed; alone: replay this one")
    parser.add_argument("--histories", type=int, help=f"how many; {HISTORIES} if nothing else is said")
    parser.add_argument("--minutes", type=float, help="for how long")
    parser.add_argument("--steps", type=int, help="until so many events have run")
    parser.add_argument("--mode", type=Mode, choices=list(Mode), help="what is delivered; else all in turn")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes; one for each core")
    parser.add_argument(
        "--mutant",
        choices=[*MANY, *BY_NAME],
        metavar="NAME|all|servers",
        help="hunt a deliberate bug, all of them, or all that simulated servers may do wrong: "
        + ", ".join(BY_NAME),
    )
    parser.add_argument("--list", action="store_true", help="print all deliberate bugs as CSV")
    parser.add_argument("--only", type=_kinds, help="kinds of faults, with commas between them")
    parser.add_argument("--trace", action="store_true", help="print all that happens under --seed")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
