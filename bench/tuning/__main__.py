"""Measures the cells in turn, and writes what each is beside the cell that it is compared with."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path

from bench.tuning.cell import Cell
from bench.tuning.matrix import Line, lines, near
from bench.tuning.measure import measured
from bench.tuning.place import Servers
from bench.tuning.report import Results, write

DOCS = Path(__file__).parents[2] / "docs"
BESIDE = {100: 2}
"""Milliseconds of the link to the broker → how many cells may be measured at the same time."""


def take(servers: Servers, cells: Iterable[Cell]) -> Mapping[Cell, Mapping[str, float]]:
    """Measures each cell once; those whose brokers are equally far away beside each other."""
    found: dict[Cell, Mapping[str, float]] = {}
    for broker, some in groupby(sorted(cells, key=lambda cell: cell.broker), lambda cell: cell.broker):
        servers.to_broker.seconds = broker / 1000
        with ThreadPoolExecutor(BESIDE.get(broker, 1)) as pool:
            group = list(some)
            values = pool.map(lambda cell: _once(servers, cell), group)
            found.update(zip(group, values, strict=True))
    return found


def _once(servers: Servers, cell: Cell) -> Mapping[str, float]:
    began = time.monotonic()
    try:
        values = measured(servers, cell)
    except TimeoutError as error:
        print(error, file=sys.stderr)
        values = {}
    told = ", ".join(f"{name} {value:,.1f}" for name, value in values.items())
    print(f"{cell}: {told} ({time.monotonic() - began:.0f} s)", file=sys.stderr, flush=True)
    return values


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.tuning", description=__doc__)
    parser.add_argument("--near", action="store_true", help="the cells without delay, on a quiet machine")
    parser.add_argument("--tables", nargs="+", metavar="NAME", help="default: all")
    parser.add_argument("--rounds", type=int, default=3, help="of each cell (3)")
    parser.add_argument("--into", type=Path, default=DOCS / "tuning.json", help="for the results, as JSON")
    parser.add_argument("--page", type=Path, help="a page whose tables are written from the results")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    wanted: list[Line] = [
        line for line in (near() if asked.near else lines()) if line.table in (asked.tables or [line.table])
    ]
    before: Results = json.loads(asked.into.read_text()) if asked.into.exists() else {}
    results: Results = dict(before)
    for line in wanted:
        results.setdefault(line.table, {}).pop(f"{line.cell.delivery}: {line.label}", None)
    cells = sorted({cell for line in wanted for cell in (line.cell, line.base)}, key=repr)
    with Servers() as servers:
        for number in range(asked.rounds):
            found = take(servers, cells if number % 2 == 0 else cells[::-1])
            for line in wanted:
                rounds = results[line.table].setdefault(f"{line.cell.delivery}: {line.label}", [])
                rounds.append({"it": dict(found[line.cell]), "base": dict(found[line.base])})
            asked.into.write_text(json.dumps(results, indent=1) + "\n")
    if asked.page:
        write(results, asked.page)


if __name__ == "__main__":
    main()
