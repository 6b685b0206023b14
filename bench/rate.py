"""Measures how fast the harvester and plain sequential loops drain a backlog, in turn, in one run."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from environment import Environment, environment, harvester

LOOPS = {"loop-flush": "flush", "loop-commit": "commit", "mark-and-purge": "discard"}
"""The plain loop of ``sequential.py``: with acknowledged records, with transactions, without a broker."""
MODES = ("at-least-once", "exactly-once")
WARM_UP_ROWS = 20_000


@contextmanager
def loop(on: Environment, how: str) -> Iterator[None]:
    """Runs the plain sequential loop in a process of its own."""
    program = Path(__file__).with_name("sequential.py")
    process = subprocess.Popen([sys.executable, str(program), on.dsn, on.bootstrap, how])
    try:
        time.sleep(1.0)
        yield
    finally:
        process.kill()
        process.wait()


def running(on: Environment, who: str, engine: str, limits: dict[str, int]) -> AbstractContextManager[object]:
    """Starts one of the contenders."""
    if who in LOOPS:
        return loop(on, LOOPS[who])
    return harvester(on.settings(f"bench-{who}", engine=engine, delivery=who, limits=limits))


def drain(on: Environment, topic: str, rows: int, keys: int) -> float:
    """Returns rows per second from the commit of a backlog to an empty table."""
    on.fill(topic, rows, keys)
    return rows / on.seconds_until_empty()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3, help="how many times each is measured")
    parser.add_argument("--engine", default="spark", choices=["spark", "inline"])
    parser.add_argument("--who", nargs="+", default=[*MODES, *LOOPS], choices=[*MODES, *LOOPS])
    parser.add_argument("--limit", action="append", default=[], metavar="KEY=VALUE", help="a key of limits")
    arguments = parser.parse_args()
    limits = {key: int(value) for key, value in (each.split("=") for each in arguments.limit)}
    rates: dict[str, list[float]] = {who: [] for who in arguments.who}
    with environment() as on:
        topic = on.topic()
        for round_ in range(arguments.rounds + 1):
            for who in arguments.who:
                with running(on, who, arguments.engine, limits):
                    drain(on, topic, WARM_UP_ROWS, arguments.keys)  # warms up caches and compilers
                    rate = drain(on, topic, arguments.rows, arguments.keys)
                if round_:
                    rates[who].append(rate)
                print(f"{f'round {round_}' if round_ else 'warm-up'}: {who:15} {rate:9,.0f}/s", flush=True)
    print(f"{arguments.rows:,} rows, {arguments.keys:,} keys, engine {arguments.engine}:")
    for who, found in rates.items():
        beside = ", ".join(
            f"{statistics.median(a / b for a, b in zip(found, others, strict=True)):.2f} of {other}"
            for other, others in rates.items()
            if other != who
        )
        print(f"  {who:15} {statistics.median(found):9,.0f}/s  {beside}")


if __name__ == "__main__":
    main()
