"""What a span of time cost: CPU seconds of every process, WAL, statements, memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Self

import psutil

from bench.compare.candidates import Subject
from bench.compare.servers import Place

MIB = 1024 * 1024
Values = dict[str, float]
"""Name of a figure → the figure; the name says the unit."""


class Meter:
    """Reads counters at the start and at the end of a span.

    Args:
        place: The candidate's place.
        subject: The running candidate.
    """

    def __init__(self, place: Place, subject: Subject) -> None:
        self._database = place.servers.database
        self._pids = {"database": self._database.pid, "broker": place.servers.kafka.pid}
        self._pids |= {role: process.pid for role, process in subject.processes.items()}
        self._connection = place.connect()
        self._before = self._read()

    def start(self) -> None:
        """Starts the span anew."""
        self._before = self._read()

    def stop(self) -> Values:
        """Returns what was used since the start.

        Returns:
            ``seconds``; ``cpu … s`` for the database, the broker, the subject, its application if it has one,
            and ``cpu s`` for all; and what the database counts.
        """
        after = self._read()
        used = {name: after[name] - self._before[name] for name in after}
        used["cpu s"] = sum(seconds for name, seconds in used.items() if name.startswith("cpu "))
        return used

    def close(self) -> None:
        """Closes its connection."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> Values:
        found = {"seconds": time.monotonic()}
        found |= {f"cpu {role} s": cpu_seconds(pid) for role, pid in self._pids.items()}
        return found | self._database.counters(self._connection)


def family(pid: int) -> Iterator[psutil.Process]:
    """Yields a process and its descendants, as far as they are alive."""
    try:
        root = psutil.Process(pid)
        yield root
        yield from root.children(recursive=True)
    except psutil.NoSuchProcess:
        return


def cpu_seconds(pid: int) -> float:
    """Returns the user and system time of a process and its descendants, ended ones included."""
    total = 0.0
    for process in family(pid):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        # A parent has the times of children that ended; those of living ones are their own.
        total += times.user + times.system + times.children_user + times.children_system
    return total


def cpu_by_kind(pids: Iterable[int]) -> Values:
    """Returns the CPU seconds of processes and living descendants: ``java``, ``python``, ``other``."""
    found: Values = {}
    for process in (each for pid in pids for each in family(pid)):
        try:
            name, times = process.name(), process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        kind = next((each for each in ("java", "python") if name.startswith(each)), "other")
        found[kind] = found.get(kind, 0.0) + times.user + times.system
    return found


def memory(pid: int) -> float:
    """Returns the proportional set size of a process and its descendants in MiB.

    Shared memory is divided among its processes, so the sum is what the machine needs.
    """
    total = 0
    for process in family(pid):
        try:
            total += process.memory_full_info().pss
        except psutil.Error:
            continue
    return total / MIB


class Peak:
    """Samples the memory of processes until it is stopped.

    Args:
        processes: Role → process id.
    """

    def __init__(self, processes: Mapping[str, int]) -> None:
        self.peaks = dict.fromkeys(processes, 0.0)
        self._processes = processes
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def stop(self) -> dict[str, float]:
        """Stops sampling; returns role → peak in MiB."""
        self._stop.set()
        self._thread.join()
        return self.peaks

    def _follow(self) -> None:
        while not self._stop.wait(0.3):
            for role, pid in self._processes.items():
                self.peaks[role] = max(self.peaks[role], memory(pid))
