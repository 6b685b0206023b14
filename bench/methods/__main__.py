"""Methods of harvesting, side by side: what they show, what they cost, and the page about it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.methods.catalog import DELIVERIES, METHODS
from bench.methods.connector import compared
from bench.methods.costs import Costs, Effort
from bench.methods.counting import Bench, counted
from bench.methods.report import write

DOCS = Path(__file__).parents[2] / "docs"
EVERY = (*METHODS, *DELIVERIES)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.methods", description=__doc__)
    parser.add_argument("parts", nargs="+", choices=("histories", "costs", "connector", "page"))
    parser.add_argument("--methods", nargs="+", metavar="NAME", help="default: all")
    parser.add_argument("--histories", type=int, default=30, help="of each kind (30; of outbox a third)")
    parser.add_argument("--quick", action="store_true", help="measure costs once, and briefly")
    parser.add_argument("--source", type=Path, help="a clone of the JDBC connector's repository")
    parser.add_argument("--into", type=Path, default=DOCS / "methods.json", help="for the results, as JSON")
    asked = parser.parse_args()
    results = json.loads(asked.into.read_text()) if asked.into.exists() else {"histories": {}}
    if "histories" in asked.parts:
        count(results, asked.methods or EVERY, asked.histories, asked.into)
    if "costs" in asked.parts:
        effort = Effort(1, 1.0, 2.0, 2000, 1.0) if asked.quick else Effort()
        results["costs"] = Costs(effort, asked.methods or ()).run()
    if "connector" in asked.parts:
        results["connector"] = compared(asked.source)
    save(results, asked.into)
    if "page" in asked.parts:
        write(results, DOCS / "methods.md")


def count(results: dict[str, Any], methods: Sequence[str], histories: int, into: Path) -> None:
    """Executes histories with methods, and saves the results after each."""
    with Bench() as bench:
        for name in methods:
            known = results["histories"].get(name, {}).get("smallest", {})
            number = histories // 3 if name in DELIVERIES else histories
            results["histories"][name] = counted(bench.prepared(name), number, known)
            save(results, into)


def save(results: dict[str, Any], into: Path) -> None:
    """Writes all results."""
    into.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
