"""Measures what a mark costs that leaves out busy keys, behind whose rows nothing waits: it reads them all.

Starts databases of its own. Run ``uv run bench/busy_keys.py --help``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import psutil
from databases import DATABASES, fill, place
from environment import cpu_seconds
from outbox_api import Dialect, Seam, find
from outbox_core.settings import Limits

BUSY = (1, 100, 1000)
MAX_BYTES = Limits().max_lane_bytes // 2


def server_of(database: str) -> psutil.Process:
    """Returns the process that does the work: the newest server below this process, or this one."""
    children = psutil.Process().children(recursive=True)
    words = {"postgres": "postgres", "mysql": "mysqld", "mariadb": "mariadbd"}.get(database)
    found = [each for each in children if words and any(words in Path(word).name for word in each.cmdline())]
    return found[0] if found else psutil.Process()


def marks(dialect: Dialect, server: psutil.Process, busy: int, rounds: int) -> tuple[float, float]:
    """Returns the median of seconds, and the mean of the database's CPU seconds, of marks that find none."""
    table = dialect.connect()
    fence, leader = table.enter(0, 1, table.bump(1, "bench")), uuid4()
    keys, seconds = [f"key-{number}" for number in range(busy)], list[float]()
    before = cpu_seconds(server)
    for _ in range(rounds):
        began = time.perf_counter()
        if table.mark(fence, leader, 1000, MAX_BYTES, keys):
            raise SystemExit("a mark found rows")
        seconds.append(time.perf_counter() - began)
    used = (cpu_seconds(server) - before) / rounds
    table.close()
    return statistics.median(seconds), used


def measure(database: str, rows: int, rounds: int) -> None:
    """Prints a line for each number of busy keys."""
    with ExitStack() as stack:
        driver, source = place(database, stack)
        plugin = find(Seam.DIALECT, driver)
        server = server_of(database)
        for busy in BUSY:
            dialect = plugin.create(plugin.options(data_source=source, table=f"busy_{busy}"))
            dialect.create()
            fill(dialect, driver, rows, busy, f"busy_{busy}")
            median, used = marks(dialect, server, busy, rounds)
            cost = f"{median * 1000:7.1f} ms, CPU {used / rows * 1e6:.3f} µs a row"
            print(f"{database:9} {busy:5} busy keys: {cost}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--databases", nargs="+", default=DATABASES, choices=DATABASES)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    for database in arguments.databases:
        measure(database, arguments.rows, arguments.rounds)


if __name__ == "__main__":
    main()
