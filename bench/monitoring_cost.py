"""Measures what metrics cost a harvester that drains a backlog: rate, and processor time of a record.

Alternates between a harvester without ``http.listen`` and one that is scraped, and whose status is read,
every second. With ``--base`` also one of another checkout, such as of a version before the metrics. On a busy
machine only the processor time tells something.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
from environment import Environment, environment, wait_for

WARM_UP_ROWS = 20_000
PORT = 18_080


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
            base / "sdk",
            base / "core",
            *(each for each in (base / "plugins").iterdir() if each.is_dir()),
        ]
        variables["PYTHONPATH"] = os.pathsep.join(map(str, sources))
    command = [sys.executable, "-m", "outbox_core", "run", "-f", str(settings)]
    with settings.with_suffix(".log").open("w+") as log:
        process = subprocess.Popen(command, stderr=log, text=True, env=variables)
        try:
            wait_for(log.name, "leader acquired", process)
            yield psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(30)


def drain(on: Environment, process: psutil.Process, topic: str, rows: int) -> tuple[float, float]:
    """Returns rows per second, and microseconds of processor time for each."""
    process.suspend()  # so that each drains the same backlog in the same batches
    on.fill(topic, rows, 1000)
    before = process.cpu_times()
    process.resume()
    seconds = on.seconds_until_empty()
    after = process.cpu_times()
    used = after.user + after.system - before.user - before.system
    return rows / seconds, 1e6 * used / rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--delivery", default="at-least-once", choices=["at-least-once", "exactly-once"])
    parser.add_argument("--who", nargs="+", default=["off", "on"], choices=["off", "on"])
    parser.add_argument("--base", type=Path, help="a checkout of another version")
    arguments = parser.parse_args()
    contenders = [*arguments.who, *(["base"] if arguments.base else [])]
    rates: dict[str, list[float]] = {who: [] for who in contenders}
    costs: dict[str, list[float]] = {who: [] for who in contenders}
    with environment() as on:
        topic = on.topic()
        for number in range(arguments.rounds):
            for who in contenders if number % 2 == 0 else reversed(contenders):
                with running(on, who, arguments.delivery, arguments.base) as process:
                    watched = scraped(PORT) if who == "on" else contextlib.nullcontext()
                    with watched:
                        drain(on, process, topic, WARM_UP_ROWS)
                        rate, cost = drain(on, process, topic, arguments.rows)
                rates[who].append(rate)
                costs[who].append(cost)
                print(f"{who:>5} {rate:10,.0f} rows/s {cost:8.2f} µs of processor time a row", flush=True)
    for who in contenders:
        ratios = [cost / other for cost, other in zip(costs[who], costs[contenders[-1]], strict=True)]
        rate, cost, ratio = map(statistics.median, (rates[who], costs[who], ratios))
        print(
            f"{who:>5}: median {rate:,.0f} rows/s, {cost:.2f} µs a row (least {min(costs[who]):.2f}), "
            f"{ratio:.3f} of {contenders[-1]} paired"
        )


if __name__ == "__main__":
    main()
