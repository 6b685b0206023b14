"""Histories by the thousand: one at a time, in several processes, and the report of those that fail."""

from __future__ import annotations

import logging
import multiprocessing
import time
import traceback
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from .faults import kinds_of
from .mutants import BY_NAME, Mutant
from .scenario import Mode
from .spark_world import SparkWorld
from .trail import Violation
from .world import World

SHOWN = 40
"""Events that a report of a failure shows."""
BROKEN = "error"
"""What stands for an invariant when the product's own code raises."""

Event = tuple[float, str, int | None, str | None, str]


@dataclass(frozen=True, slots=True)
class History:
    """What came of one seed.

    Attributes:
        seed: The seed.
        mode: What harvesters delivered.
        steps: How many events ran.
        seconds: How long a processor took for that.
        faults: Kind → how many happened.
        counts: What was done.
        invariant: Which invariant was broken; empty for none.
        message: How.
        key: The key at fault.
        lane: The lane at fault.
    """

    seed: int
    mode: Mode
    steps: int
    seconds: float
    faults: Counter[str]
    counts: Counter[str]
    invariant: str = ""
    message: str = ""
    key: str | None = None
    lane: int | None = None


def run(
    seed: int,
    mutant: Mutant | None = None,
    kinds: Sequence[str] | None = None,
    mode: Mode = Mode.AT_LEAST_ONCE,
    trace: deque[Event] | None = None,
) -> History:
    """Runs one history; the same arguments give the same one. A mutant has a mode of its own."""
    with _silence():
        return _history(seed, mutant, kinds, mode, trace)


@contextmanager
def _silence() -> Iterator[None]:
    """Keeps the product from logging what befalls it: here that is a great deal, and nobody reads it."""
    log = logging.getLogger("outbox")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


def _history(
    seed: int, mutant: Mutant | None, kinds: Sequence[str] | None, mode: Mode, trace: deque[Event] | None
) -> History:
    mode = mutant.mode if mutant else mode
    kinds = kinds or (mutant and mutant.kinds) or kinds_of(mode)
    fixed = mutant.fixed if mutant else {}
    kind = SparkWorld if mode is Mode.SPARK else World
    world = kind(seed, mutant.parts if mutant else None, kinds, mode, trace=trace, fixed=fixed)
    began, invariant, message = time.process_time(), "", ""
    key = lane = None
    try:
        world.run()
    except Violation as violation:
        invariant, message, key, lane = violation.invariant, str(violation), violation.key, violation.lane
    except Exception as error:  # noqa: BLE001 - a bug found, to be reported with its seed like any other
        invariant, message = BROKEN, "".join(traceback.format_exception(error, limit=-4))
    seconds, faults, counts = time.process_time() - began, world.faults, world.audit.counts
    steps = world.scheduler.steps
    return History(seed, mode, steps, seconds, faults, counts, invariant, message, key, lane)


def report(history: History, mutant: Mutant | None = None, kinds: Sequence[str] | None = None) -> str:
    """Returns what is worth reading about a history that failed, and how to see it again."""
    fewest = shrink(history, mutant, kinds)
    trace: deque[Event] = deque(maxlen=1_000_000)
    history = run(history.seed, mutant, fewest, history.mode, trace)
    replay = f"python -m tests.simulation --seed {history.seed}"
    replay += f" --mutant {mutant.name}" if mutant else f" --mode {history.mode}"
    replay += f" --only '{','.join(fewest)}'"
    told = [_line(event) for event in trace if _concerns(event, history)]
    return "\n".join(
        [
            f"seed {history.seed} broke {history.message}",
            *told[-SHOWN:],
            f"again, with all that happened: {replay} --trace",
        ]
    )


def shrink(history: History, mutant: Mutant | None, kinds: Sequence[str] | None) -> tuple[str, ...]:
    """Returns fewer kinds of faults with which the seed breaks the same invariant."""
    fewest = tuple(kinds or (mutant and mutant.kinds) or kinds_of(history.mode))
    for kind in fewest:
        fewer = tuple(each for each in fewest if each != kind)
        if fewer and run(history.seed, mutant, fewer, history.mode).invariant == history.invariant:
            fewest = fewer
    return fewest


def lines(seed: int, mutant: Mutant | None, kinds: Sequence[str] | None, mode: Mode) -> Iterator[str]:
    """Runs one history and returns all that happened in it."""
    trace: deque[Event] = deque()
    history = run(seed, mutant, kinds, mode, trace)
    yield from map(_line, trace)
    yield history.message or "no violation"


def _line(event: Event) -> str:
    at, host, lane, key, text = event
    where = "" if lane is None else f" lane {lane}"
    what = "" if key is None else f"{key}: "
    return f"{at:10.4f}  {host}{where}  {what}{text}"


def _concerns(event: Event, history: History) -> bool:
    _, _, lane, key, text = event
    if key is not None and history.key is not None:
        return key == history.key
    if lane is not None and lane != history.lane and history.lane is not None:
        return False
    return not text.endswith(": nothing") and not text.startswith("asks for Mark")


@dataclass(slots=True)
class Tally:
    """The sum of many histories."""

    histories: int = 0
    steps: int = 0
    seconds: float = 0.0
    processor_seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    failed: list[History] = field(default_factory=list)

    def take(self, history: History) -> None:
        self.histories += 1
        self.steps += history.steps
        self.processor_seconds += history.seconds
        self.faults += history.faults
        self.counts += history.counts
        if history.invariant:
            self.failed.append(history)

    def table(self) -> str:
        """Returns the table for the record."""
        minutes = max(self.seconds, 1e-9) / 60
        numbers = [("histories", self.histories), ("steps", self.steps)]
        numbers += [("faults", sum(self.faults.values())), *sorted(self.faults.items())]
        numbers += sorted(self.counts.items())
        rows = [f"{name:<24}{number:>14,}{number / minutes:>16,.0f}" for name, number in numbers]
        title = f"{'':<24}{'in all':>14}{'per minute':>16}"
        rate = self.steps / max(self.processor_seconds, 1e-9)
        rows.append(f"steps in a second of one core: {rate:,.0f}")
        return "\n".join([title, *rows, f"violations: {len(self.failed)}"])


def many(
    seeds: Iterable[tuple[int, Mode]], jobs: int, kinds: Sequence[str] | None = None
) -> Iterator[History]:
    """Runs histories in ``jobs`` processes, and yields them as they end."""
    work = ((seed, None, kinds, mode) for seed, mode in seeds)
    if jobs == 1:
        yield from (run(*arguments) for arguments in work)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(_run, work, chunksize=4)


def _run(arguments: tuple[int, Mutant | None, Sequence[str] | None, Mode]) -> History:
    return run(*arguments)


@dataclass(frozen=True, slots=True)
class Hunt:
    """How a mutant fared.

    Attributes:
        name: Its name.
        seeds: How many histories it took, caught or not.
        seconds: How long a processor took for them.
        caught: The history that caught it, or ``None``.
        others: Violations met on the way that are not its own.
    """

    name: str
    seeds: int
    seconds: float
    caught: History | None
    others: Counter[str]


def hunt(name: str, first: int | None = None) -> Hunt:
    """Runs a mutant's histories, from its own first seed or another, until it is caught or has its budget."""
    mutant, began = BY_NAME[name], time.process_time()
    others: Counter[str] = Counter()
    begin = mutant.first if first is None else first
    for number, seed in enumerate(range(begin, begin + mutant.budget), 1):
        history = run(seed, mutant)
        if history.invariant in mutant.invariants:
            return Hunt(name, number, time.process_time() - began, history, others)
        if history.invariant:
            others[history.invariant] += 1
    return Hunt(name, mutant.budget, time.process_time() - began, None, others)


def hunts(names: Sequence[str], jobs: int, first: int | None = None) -> Iterator[Hunt]:
    """Hunts several mutants in ``jobs`` processes."""
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(_hunt, [(name, first) for name in names])


def _hunt(arguments: tuple[str, int | None]) -> Hunt:
    return hunt(*arguments)
