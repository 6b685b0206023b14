"""Measures what an outbox in partitions costs: rate and PostgreSQL's CPU beside one without, in turn."""

from __future__ import annotations

import argparse
import copy
import statistics
import subprocess
import sys
from contextlib import suppress
from typing import NamedTuple

import psutil
from environment import Environment, environment, harvester
from psycopg.conninfo import make_conninfo

MODES = ("at-least-once", "exactly-once")
WARM_UP_ROWS = 20_000
WAYS = ("none", "made by init", "10 more")


class Drained(NamedTuple):
    """What one backlog took: records a second, and microseconds of PostgreSQL's CPU a record."""

    rate: float
    cpu: float


def outbox(on: Environment, way: str) -> Environment:
    """Creates an outbox in a database of its own."""
    name = f"way{WAYS.index(way)}"
    with on.connect() as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    made = copy.copy(on)
    made.dsn = make_conninfo(on.dsn, dbname=name)
    divided = [] if way == "none" else ["--table-partitions", "day"]
    settings = made.settings(f"init-{name}")
    subprocess.run([sys.executable, "-m", "outbox_core", "init", "-f", str(settings), *divided], check=True)
    if way == "10 more":
        with made.connect() as connection:
            for day in range(10, 20):
                bounds = f"FROM ('2040-01-{day} 00:00+00') TO ('2040-01-{day + 1} 00:00+00')"
                part = f"CREATE TABLE more_{day} PARTITION OF outbox FOR VALUES {bounds}"
                connection.execute(f"{part} WITH (fillfactor = 45)".encode())
    return made


def drain(on: Environment, topic: str, rows: int, arguments: argparse.Namespace) -> Drained:
    """Lets the harvester that runs deliver a backlog."""
    with on.connect() as connection:
        on.fill(topic, rows, arguments.keys, arguments.bytes)
        server = psutil.Process(connection.info.backend_pid).parent()
        assert server
        before = cpu_by_process(server)
        seconds = on.seconds_until_empty()
        # Those that have ended meanwhile vacuumed; they are the same for all ways.
        used = sum(cpu - before.get(pid, 0.0) for pid, cpu in cpu_by_process(server).items())
        return Drained(rows / seconds, used / rows * 1e6)


def cpu_by_process(server: psutil.Process) -> dict[int, float]:
    """Returns the CPU seconds of a server's processes by their numbers."""
    found = {}
    for each in server.children():
        with suppress(psutil.NoSuchProcess):
            times = each.cpu_times()
            found[each.pid] = times.user + times.system
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--bytes", type=int, default=100, help="of each value")
    parser.add_argument("--rounds", type=int, default=3, help="how many times each is measured")
    parser.add_argument("--engine", default="inline", choices=["spark", "inline"])
    arguments = parser.parse_args()
    found: dict[tuple[str, str], list[Drained]] = {}
    with environment() as on:
        topic, outboxes = on.topic(), {way: outbox(on, way) for way in WAYS}
        for round_ in range(arguments.rounds + 1):
            for mode in MODES:
                for way, made in outboxes.items():
                    settings = made.settings(f"bench-{mode}", engine=arguments.engine, delivery=mode)
                    with harvester(settings):
                        drain(made, topic, WARM_UP_ROWS, arguments)
                        drained = drain(made, topic, arguments.rows, arguments)
                    if round_:
                        found.setdefault((mode, way), []).append(drained)
                    print(
                        f"round {round_}: {mode:14} {way:13} {drained.rate:9,.0f}/s {drained.cpu:6.1f} µs",
                        flush=True,
                    )
    for mode in MODES:
        for way in WAYS[1:]:
            pairs = list(zip(found[mode, WAYS[0]], found[mode, way], strict=True))
            rates = ", ".join(f"{b.rate / a.rate:.2f}" for a, b in pairs)
            cpu = [statistics.median(each.cpu for each in some) for some in zip(*pairs, strict=True)]
            print(
                f"{mode}, {way}: rate beside none {rates}; CPU of a record {cpu[0]:.1f} and {cpu[1]:.1f} µs"
            )


if __name__ == "__main__":
    main()
