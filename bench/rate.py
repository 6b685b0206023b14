"""How fast a backlog is drained: the harvester and a plain sequential loop in turn, in one run."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path

from stage import Stage, stage


class Loop(AbstractContextManager["Loop"]):
    """The plain sequential loop, as a process."""

    def __init__(self, on: Stage) -> None:
        program = Path(__file__).with_name("sequential.py")
        self._process = subprocess.Popen([sys.executable, str(program), on.dsn, on.bootstrap])
        time.sleep(1.0)

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def drain(on: Stage, topic: str, rows: int, keys: int) -> float:
    """Returns rows per second from the commit of a backlog to an empty table."""
    on.fill(topic, rows, keys)
    return rows / on.seconds_until_empty()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--pairs", type=int, default=3, help="how many times each is measured")
    parser.add_argument("--engine", default="spark", choices=["spark", "inline"])
    parser.add_argument("--limit", action="append", default=[], metavar="KEY=VALUE", help="a key of limits")
    arguments = parser.parse_args()
    limits = {key: int(value) for key, value in (each.split("=") for each in arguments.limit)}
    rates: dict[str, list[float]] = {"harvester": [], "loop": []}
    with stage() as on:
        topic = on.topic()
        settings = on.settings("bench", engine=arguments.engine, limits=limits)
        for pair in range(arguments.pairs + 1):
            with on.harvester(settings):
                drain(on, topic, 20_000, arguments.keys)  # warms caches and compilers
                harvester = drain(on, topic, arguments.rows, arguments.keys)
            with Loop(on):
                drain(on, topic, 20_000, arguments.keys)
                loop = drain(on, topic, arguments.rows, arguments.keys)
            kind = "warm-up" if pair == 0 else f"pair {pair}"
            print(
                f"{kind}: harvester {harvester:9,.0f}/s   loop {loop:9,.0f}/s   ratio {harvester / loop:.2f}"
            )
            if pair:
                rates["harvester"].append(harvester)
                rates["loop"].append(loop)
    ratios = [h / p for h, p in zip(rates["harvester"], rates["loop"], strict=True)]
    print(
        f"{arguments.rows:,} rows, {arguments.keys:,} keys, engine {arguments.engine}: medians "
        f"{statistics.median(rates['harvester']):,.0f}/s and {statistics.median(rates['loop']):,.0f}/s, "
        f"ratio {statistics.median(ratios):.2f}"
    )


if __name__ == "__main__":
    main()
