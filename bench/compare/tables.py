"""The tables: for each its name, its options, its candidates and how it is measured."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.compare.backlog import Shape
from bench.compare.bench import Bench
from bench.compare.claims import claims
from bench.compare.databases import DATABASES, POSTGRES
from bench.compare.drain import Drain
from bench.compare.registry import LANES, MODES, PEERS
from bench.compare.resident import idle, peak_memory, start, writers
from bench.compare.standing import CONDITIONS, FRESH, PARKED, standing
from bench.compare.steady import latency, recovery, snapshot

LOOPS = ("loop/flush", "loop/commit", "database/mark", "database/select", "own/mark", "own/advance")

Options = Callable[[argparse.ArgumentParser], None]
Run = Callable[[Bench, argparse.Namespace, Sequence[str]], None]


@dataclass(frozen=True, slots=True)
class Table:
    """One table.

    Attributes:
        name: Its name, that of its subcommand as well.
        help: What it answers.
        candidates: The names of those that are measured by default.
        options: Adds its options to a parser.
        run: Measures it.
        databases: The databases it can be measured on.
    """

    name: str
    help: str
    candidates: tuple[str, ...]
    options: Options
    run: Run
    databases: tuple[str, ...] = (POSTGRES,)


def option(command: argparse.ArgumentParser, name: str, **settings: object) -> None:
    """Adds an option, unless another table has added it."""
    if name not in command._option_string_actions:  # noqa: SLF001 - argparse has no public way to ask
        command.add_argument(name, **settings)  # type: ignore[arg-type]


def drain_options(command: argparse.ArgumentParser) -> None:
    option(command, "--rows", type=int, default=1_000_000, help="rows of a backlog (1,000,000)")
    option(command, "--keys", nargs="+", default=["many", "one", "zipf"], choices=["many", "one", "zipf"])
    option(command, "--sizes", nargs="+", type=int, default=[100, 1000, 10_000], help="characters of values")
    option(command, "--text", default="dots", choices=["dots", "hex"], help="dots compress, hex does not")
    option(command, "--patience", type=float, default=60, help="seconds after which a drain is cut off (60)")


def run_drain(bench: Bench, arguments: argparse.Namespace, candidates: Sequence[str]) -> None:
    """Drains backlogs of all shapes that were asked for."""
    sizes = arguments.sizes[:1] if arguments.quick else arguments.sizes
    shapes = [
        Shape(keys, size, arguments.text)
        for keys in arguments.keys
        for size in sizes
        if keys == "many" or size == sizes[0]
    ]
    bench.measure("drain", {str(each): drain(arguments).twice(bench, each) for each in shapes}, candidates)


def run_lanes(bench: Bench, arguments: argparse.Namespace, candidates: Sequence[str]) -> None:
    """Drains with more and more lanes."""
    shape = Shape("many", arguments.sizes[0], arguments.text)
    bench.measure("lanes", {str(shape): drain(arguments).twice(bench, shape)}, candidates)


def drain(arguments: argparse.Namespace) -> Drain:
    """Returns how backlogs are drained."""
    return Drain(10_000 if arguments.quick else arguments.rows, arguments.patience)


def steady_options(command: argparse.ArgumentParser) -> None:
    option(command, "--rates", nargs="+", type=int, default=[600, 1000, 10_000], help="records per second")
    option(command, "--seconds", type=float, default=60, help="how long something steady is measured (60)")


def run_latency(bench: Bench, arguments: argparse.Namespace, candidates: Sequence[str]) -> None:
    """Measures latencies at all rates."""
    rates = arguments.rates[:1] if arguments.quick else arguments.rates
    cases = {f"{rate:,}/s": latency(bench, rate, seconds(arguments)) for rate in rates}
    bench.measure("latency", cases, candidates)


def seconds(arguments: argparse.Namespace) -> float:
    """Returns how long something steady is measured."""
    return 5 if arguments.quick else float(arguments.seconds)


def recovery_options(command: argparse.ArgumentParser) -> None:
    option(command, "--outage", type=float, default=600, help="seconds of the outage (600), at 400 rows/s")


def run_recovery(bench: Bench, arguments: argparse.Namespace, candidates: Sequence[str]) -> None:
    """Measures how an outage is made up for."""
    outage = 20 if arguments.quick else arguments.outage
    cases = {f"{outage:g} s at 400/s": recovery(bench, 400, outage, patience=300)}
    bench.measure("recovery", cases, candidates)


def size_options(command: argparse.ArgumentParser) -> None:
    sizes = [1000, 10_000, 100_000, 1_000_000, 10_000_000]
    option(command, "--backlogs", nargs="+", type=int, default=sizes, help="rows (1,000 to 10,000,000)")


def run_claims(bench: Bench, arguments: argparse.Namespace, candidates: Sequence[str]) -> None:
    """Measures single marks and selections."""
    backlogs = arguments.backlogs[:2] if arguments.quick else arguments.backlogs
    bench.measure("claims", {f"{rows:,} rows": claims(bench, rows) for rows in backlogs}, candidates)


def backlog_options(command: argparse.ArgumentParser) -> None:
    size_options(command)
    option(command, "--conditions", nargs="+", default=CONDITIONS[:3], choices=CONDITIONS)


def run_backlog(bench: Bench, arguments: argparse.Namespace, candidates: Sequence[str]) -> None:
    """Measures what the first records of a backlog cost."""
    backlogs = arguments.backlogs[:2] if arguments.quick else arguments.backlogs
    cases = {
        f"{rows:,} rows, {condition}": standing(bench, rows, condition, portion(arguments))
        for condition in arguments.conditions
        for rows in backlogs
    }
    bench.measure("backlog", cases, candidates)


def run_parked(bench: Bench, arguments: argparse.Namespace, candidates: Sequence[str]) -> None:
    """Measures the first records of a backlog with and without parked keys in front of it."""
    rows = 10_000 if arguments.quick else 200_000
    cases = {each: standing(bench, rows, each, portion(arguments)) for each in (FRESH, PARKED)}
    bench.measure("parked", cases, candidates)


def portion(arguments: argparse.Namespace) -> int:
    """Returns how many records of a backlog are measured."""
    return 2000 if arguments.quick else 50_000


def snapshot_options(command: argparse.ArgumentParser) -> None:
    option(command, "--held", type=float, default=600, help="seconds for which a snapshot is held (600)")


def run_snapshot(bench: Bench, arguments: argparse.Namespace, candidates: Sequence[str]) -> None:
    """Measures rates and latencies under a snapshot that is held open."""
    held, rows = (10, 10_000) if arguments.quick else (arguments.held, 200_000)
    bench.measure("snapshot", {f"{held:g} s at 1,000/s": snapshot(bench, 1000, held, rows)}, candidates)


def run_idle(bench: Bench, arguments: argparse.Namespace, candidates: Sequence[str]) -> None:
    """Measures what a candidate costs while nothing is written."""
    bench.measure("idle", {"empty": idle(bench, seconds(arguments))}, candidates)


def run_start(bench: Bench, arguments: argparse.Namespace, candidates: Sequence[str]) -> None:
    """Measures the time to the first delivery."""
    del arguments
    bench.measure("start", {"one row waits": start(bench)}, candidates)


def run_memory(bench: Bench, arguments: argparse.Namespace, candidates: Sequence[str]) -> None:
    """Measures peak memory during a drain of 1 kB values."""
    rows = 20_000 if arguments.quick else 400_000
    bench.measure("memory", {f"{rows:,} rows of 1 kB": peak_memory(bench, rows, 1000)}, candidates)


def run_writers(bench: Bench, arguments: argparse.Namespace, candidates: Sequence[str]) -> None:
    """Measures what harvesting costs the writers."""
    bench.measure("writers", {"4 writers": writers(bench, seconds(arguments))}, candidates)


def no_options(command: argparse.ArgumentParser) -> None:
    del command


ALL = (*MODES, *PEERS)
SOME = ("exactly-once/inline", "at-least-once/inline", "debezium", "debezium/deleting", "goharvest/tuned")
OWN = tuple(f"{each}/own-table" for each in MODES)
PARKING = tuple(f"{each}/parking" for each in MODES)
IN_LANES = tuple(f"{each}/{lanes}-lanes" for each in MODES for lanes in LANES)

TABLES = (
    Table(
        "drain",
        "how fast a backlog is drained, cold and warm, and what a record costs: CPU, WAL, statements",
        (*ALL, *OWN, *LOOPS),
        drain_options,
        run_drain,
        DATABASES,
    ),
    Table(
        "latency",
        "from commit to consumer at steady rates, with writers that roll back and commit late",
        (*ALL, "debezium/tuned"),
        steady_options,
        run_latency,
    ),
    Table(
        "recovery",
        "how long an outage is felt: a candidate starts behind the rows of ten minutes",
        ALL,
        recovery_options,
        run_recovery,
    ),
    Table(
        "backlog",
        "whether a record costs more behind a large backlog, dead rows, a held snapshot",
        SOME,
        backlog_options,
        run_backlog,
    ),
    Table(
        "claims",
        "what one mark or selection of 100 rows costs, behind any backlog and rows that it may not take",
        ("own/mark", "own/advance"),
        size_options,
        run_claims,
    ),
    Table("parked", "what 2,000 parked keys in front cost the others", PARKING, no_options, run_parked),
    Table(
        "snapshot",
        "rates and latencies while another session holds a snapshot open",
        SOME,
        snapshot_options,
        run_snapshot,
    ),
    Table(
        "lanes",
        "draining with 1 to 8 lanes, each in a lane group",
        IN_LANES,
        drain_options,
        run_lanes,
        DATABASES,
    ),
    Table("idle", "CPU and statements while nothing is written", (*ALL, "nobody"), steady_options, run_idle),
    Table("start", "from a candidate's start to its first delivery", ALL, no_options, run_start),
    Table("memory", "peak memory while 1 kB values are drained", ALL, no_options, run_memory),
    Table(
        "writers",
        "what writers get done, with nobody and with each candidate at work",
        ("nobody", *SOME),
        steady_options,
        run_writers,
    ),
)
