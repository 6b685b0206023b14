"""Measures the peak memory of a leader and a standby, with their child processes, while a backlog is drained.

Uses the proportional set size: shared memory is divided among its processes, so the sum is what the machine
needs.
"""

from __future__ import annotations

import argparse
import threading
import time
from contextlib import ExitStack

import psutil
from environment import Environment, environment, harvester

MIB = 1024 * 1024


class Peak:
    """Samples a process and all its descendants until it is stopped.

    Args:
        pid: The process.
        name: What it is.
    """

    def __init__(self, pid: int, name: str = "harvester") -> None:
        self._name = name
        self._used: dict[int, float] = {}
        self.by_kind: dict[str, int] = {}
        self.total = 0
        self._root = psutil.Process(pid)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def stop(self) -> None:
        """Stops sampling; the peaks stay."""
        self._stop.set()
        self._thread.join()

    @property
    def processor_seconds(self) -> float:
        """What all of them have computed until now, or the end."""
        return sum(self._used.values())

    def _follow(self) -> None:
        while not self._stop.wait(0.2):
            sizes: dict[str, int] = {}
            for process in [self._root, *self._root.children(recursive=True)]:
                try:
                    kind = self._kind(process)
                    self._used[process.pid] = sum(process.cpu_times()[:2])
                    sizes[kind] = sizes.get(kind, 0) + process.memory_full_info().pss
                except psutil.Error:
                    continue
            self.total = max(self.total, sum(sizes.values()))
            for kind, size in sizes.items():
                self.by_kind[kind] = max(self.by_kind.get(kind, 0), size)

    def _kind(self, process: psutil.Process) -> str:
        if process.pid == self._root.pid:
            return self._name
        return "JVM" if process.name() == "java" else "workers"

    def __str__(self) -> str:
        parts = ", ".join(f"{kind} {size / MIB:.0f}" for kind, size in sorted(self.by_kind.items()))
        return f"{self.total / MIB:.0f} MiB ({parts})"


def wait_until_settled(on: Environment) -> int:
    """Waits until every record is delivered or its key is parked; returns how many rows are left."""
    with on.connect() as connection:
        parked = "SELECT kafka_key FROM outbox_dead_letters"
        others = f"SELECT FROM outbox WHERE kafka_key NOT IN ({parked}) LIMIT 1"
        while connection.execute(others).fetchone() is not None:
            time.sleep(0.1)
        [count] = connection.execute("SELECT count(*) FROM outbox").fetchone() or [0]
    return int(count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--value-size", type=int, default=100, help="characters")
    parser.add_argument("--engine", default="spark", choices=["spark", "inline"])
    parser.add_argument("--delivery", default="at-least-once", choices=["at-least-once", "exactly-once"])
    arguments = parser.parse_args()
    with environment() as on, ExitStack() as stack:
        processes = []
        for name in ("leader", "standby"):
            settings = on.settings(
                name,
                engine=arguments.engine,
                delivery=arguments.delivery,
                elector="neli-kafka",
                leaderGroupID="bench",
            )
            ready = "leader acquired" if name == "leader" else "joined the election"
            processes.append(stack.enter_context(harvester(settings, ready)))
        idle = [Peak(process.pid) for process in processes]
        time.sleep(5)
        for peak in idle:
            peak.stop()
        peaks = [Peak(process.pid) for process in processes]
        on.fill(on.topic(), arguments.rows, 1000, arguments.value_size)
        parked = wait_until_settled(on)
        time.sleep(1)
        for name, before, peak in zip(("leader", "standby"), idle, peaks, strict=True):
            peak.stop()
            rows = f"{arguments.rows:,} rows, {parked:,} of them parked"
            print(f"{name}: idle {before}; with {rows}: {peak}")


if __name__ == "__main__":
    main()
