"""The tables: for each its name, its options, its candidates and how it is measured."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.compare.bench import Bench
from bench.compare.drain import SHAPES, Drain
from bench.compare.registry import MODES, PEERS

LOOPS = ("loop/flush", "loop/commit", "database/mark", "database/select")

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
    """

    name: str
    help: str
    candidates: tuple[str, ...]
    options: Options
    run: Run


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
    drain = Drain(20_000 if arguments.quick else arguments.rows, arguments.patience)
    sizes = arguments.sizes[:1] if arguments.quick else arguments.sizes
    shapes = [each for each in SHAPES if each.keys in arguments.keys and each.size in sizes]
    cases = {str(each): drain.twice(bench, each) for each in shapes}
    bench.measure("drain", cases, candidates)


TABLES = (
    Table(
        "drain",
        "how fast a backlog is drained, cold and warm, and what a record costs: CPU, WAL, statements",
        (*MODES, *(f"{each}/own-table" for each in MODES), *PEERS, *LOOPS),
        drain_options,
        run_drain,
    ),
)
