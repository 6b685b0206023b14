"""Measures what metrics cost a harvester that drains a backlog: rate, and processor time of a record.

In both modes of delivery a backlog is drained in turn by a harvester whose lanes measure nothing (``bare``),
by one without ``http.listen`` (``off``), and by one that is scraped, and whose status is read, every second
(``on``). With ``--base`` also by one of another checkout, such as of a version before the metrics. Ratios are
those of one round. ``timed`` is as ``off``, and adds up the processor time of all that measures, which it
compares with that of the whole process.

On a busy machine rates tell nothing, and processor time little; the share that ``timed`` tells changes least.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil
from environment import Environment, environment, wait_for

WARM_UP_ROWS = 20_000
PORT = 18_080
SPENT = Path(tempfile.gettempdir()) / f"outbox-bench-spent-{os.getpid()}"
CONTENDERS = ["bare", "off", "on", "timed"]
DELIVERIES = ["at-least-once", "exactly-once"]
BARE = """
import sys

from outbox_core.cli import main
from outbox_core.lanes.telemetry import Telemetry


def nothing(*_):
    pass


def sending(self, now, records):
    self.metrics.sent += len(records)


Telemetry.measure = Telemetry.reported = Telemetry.settle = nothing
Telemetry.sending = sending
main(sys.argv[1:])
"""
"""A harvester that counts what a heartbeat tells, and measures nothing."""


TIMED = """
import os
import sys
from pathlib import Path
from time import thread_time

from outbox_core.cli import main
from outbox_core.lanes.telemetry import Telemetry

spent, calls, within = 0.0, 0, False


def timed(call):
    def measured(*arguments):
        global spent, calls, within
        if within:
            return call(*arguments)
        within, began = True, thread_time()
        try:
            return call(*arguments)
        finally:
            spent += thread_time() - began
            calls += 1
            within = False

    return measured


# Not "reported" and "settle" as a whole: they let go of records, which somebody else would do otherwise.
for name in ("measure", "sending", "_measure_reported", "_published"):
    setattr(Telemetry, name, timed(getattr(Telemetry, name)))
try:
    main(sys.argv[1:])
finally:
    found, made = spent, calls
    for _ in range(made):  # what the clock itself costs
        timed(lambda: None)()
    Path(os.environ["SPENT"]).write_text(str(found - (spent - found)))
"""
"""A harvester that writes down how many seconds of processor time its lanes have spent on measuring."""
PROGRAMS = {"bare": ["-c", BARE], "timed": ["-c", TIMED]}


class Drain(NamedTuple):
    """A backlog that was drained: rows per second, and microseconds of processor time for each."""

    rate: float
    cost: float


@contextlib.contextmanager
def scraped(port: int) -> Iterator[None]:
    """Asks for metrics and status once a second."""
    done = threading.Event()

    def scrape() -> None:
        while not done.wait(1.0):
            for path in ("/metrics", "/status"):
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10).read()

    thread = threading.Thread(target=scrape, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextlib.contextmanager
def running(on: Environment, who: str, delivery: str, base: Path | None) -> Iterator[psutil.Process]:
    """Runs one of the contenders."""
    settings = on.settings(f"bench-{who}", engine="inline", delivery=delivery)
    variables = dict(os.environ)
    if who == "on":
        data = json.loads(settings.read_text()) | {"http": {"listen": f"127.0.0.1:{PORT}"}}
        settings.write_text(json.dumps(data))
    if who == "base" and base is not None:
        sources = [
            base / "api",
            base / "core",
            *(each for each in (base / "plugins").iterdir() if each.is_dir()),
        ]
        variables["PYTHONPATH"] = os.pathsep.join(map(str, sources))
    variables["SPENT"] = str(SPENT)
    command = [sys.executable, *PROGRAMS.get(who, ["-m", "outbox_core"]), "run", "-f", str(settings)]
    with settings.with_suffix(".log").open("w+") as log:
        process = subprocess.Popen(command, stderr=log, text=True, env=variables)
        try:
            wait_for(log.name, "leader acquired", process)
            yield psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(30)


def drain(on: Environment, process: psutil.Process, topic: str, rows: int) -> Drain:
    """Fills the outbox, and has it drained."""
    process.suspend()  # so that each drains the same backlog in the same batches
    on.fill(topic, rows, 1000)
    before = process.cpu_times()
    process.resume()
    seconds = on.seconds_until_empty()
    after = process.cpu_times()
    used = after.user + after.system - before.user - before.system
    return Drain(rows / seconds, 1e6 * used / rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--delivery", nargs="+", default=DELIVERIES, choices=DELIVERIES)
    parser.add_argument("--who", nargs="+", default=CONTENDERS[:3], choices=CONTENDERS)
    parser.add_argument("--base", type=Path, help="a checkout of another version")
    arguments = parser.parse_args()
    contenders = [*(["base"] if arguments.base else []), *arguments.who]
    drains: dict[tuple[str, str], list[Drain]] = {
        (mode, who): [] for mode in arguments.delivery for who in contenders
    }
    with environment() as on:
        topic = on.topic()
        for number in range(arguments.rounds):
            for mode, who in drains if number % 2 == 0 else reversed(drains):
                with running(on, who, mode, arguments.base) as process:
                    watched = scraped(PORT) if who == "on" else contextlib.nullcontext()
                    with watched:
                        drain(on, process, topic, WARM_UP_ROWS)
                        found = drain(on, process, topic, arguments.rows)
                drains[mode, who].append(found)
                told = f"{found.rate:10,.0f} rows/s {found.cost:8.2f} µs of processor time a row"
                if who == "timed":
                    share = 1e6 * float(SPENT.read_text()) / (WARM_UP_ROWS + arguments.rows) / found.cost
                    told += f", {share:.2%} of it on measuring"
                print(f"{mode:>13} {who:>5} {told}", flush=True)
    for (mode, who), found in drains.items():
        print(summary(f"{mode:>13} {who:>5}", found, contenders[0], drains[mode, contenders[0]]))


def summary(name: str, drains: Sequence[Drain], other: str, others: Sequence[Drain]) -> str:
    """Compares a contender with another, round by round."""
    costs = sorted(each.cost / before.cost for each, before in zip(drains, others, strict=True))
    rates = [each.rate / before.rate for each, before in zip(drains, others, strict=True)]
    cost, rate = (statistics.median(getattr(each, figure) for each in drains) for figure in ("cost", "rate"))
    return (
        f"{name}: median {cost:.2f} µs a row, {statistics.median(costs):.3f} of {other} "
        f"({costs[0]:.3f} to {costs[-1]:.3f}); {rate:,.0f} rows/s, {statistics.median(rates):.3f} of {other}"
    )


if __name__ == "__main__":
    main()
