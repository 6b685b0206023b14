"""What a candidate needs when it is there: idle, at its start, memory, and what it costs the writers."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable
from contextlib import closing
from multiprocessing.connection import Connection
from typing import Any

import psycopg

from bench.compare.backlog import Backlog, Shape
from bench.compare.bench import Bench
from bench.compare.candidates import Candidate, CandidateError
from bench.compare.drain import at_work
from bench.compare.meter import Meter, Peak, Values, cpu_by_kind, memory
from bench.compare.servers import Place
from bench.compare.steady import pace, shares, warm_up, watch
from bench.compare.traffic import DELETE, INSERT

SETTLING = 10.0
"""Seconds until whatever follows a backlog is over."""
WRITERS = 4
PATIENCE = 120.0

_spawning = multiprocessing.get_context("spawn")


def idle(bench: Bench, seconds: float) -> Callable[[Candidate], Values]:
    """Returns a function that measures what a candidate costs while nothing is written."""

    def take(candidate: Candidate) -> Values:
        with at_work(bench, candidate) as (place, subject):
            if subject.processes:
                warm_up(place, subject)
            watch(subject, min(SETTLING, seconds))
            pids = [process.pid for process in subject.processes.values()]
            with Meter(place, subject) as meter:
                before = cpu_by_kind(pids)
                meter.start()
                watch(subject, seconds)
                used = meter.stop()
                after = cpu_by_kind(pids)
            kinds = {f"{kind} %": 100 * (after[kind] - before.get(kind, 0)) / seconds for kind in after}
            return {**shares(used), **kinds, "memory MiB": sum(map(memory, pids))}

    return take


def start(bench: Bench) -> Callable[[Candidate], Values]:
    """Returns a function that measures the time from a candidate's start to its first delivery.

    It has run before, so its tables, topics and slots exist; one row waits for it.
    """

    def take(candidate: Candidate) -> Values:
        with bench.servers.place(own_table=candidate.own_table) as place:
            candidate.install(place)
            with candidate.running(place) as subject:
                if candidate.name.startswith("nobody"):
                    raise CandidateError("it delivers nothing")
                warm_up(place, subject)
            insert(place)
            clock = _Clock(place)
            with candidate.running(place):
                ready = time.monotonic() - clock.started
                return {"first delivery s": clock.wait(), "ready s": ready}

    return take


class _Clock:
    """Measures from now to the next delivery."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._before = place.servers.written(place.topic)
        self._seconds: float | None = None
        self.started = time.monotonic()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def wait(self) -> float:
        self._thread.join()
        if self._seconds is None:
            raise CandidateError(f"nothing was delivered within {PATIENCE:g} s")
        return self._seconds

    def _follow(self) -> None:
        while time.monotonic() < self.started + PATIENCE:
            if self._place.servers.written(self._place.topic) > self._before:
                self._seconds = time.monotonic() - self.started
                return
            time.sleep(0.01)


def insert(place: Place) -> None:
    """Writes one row."""
    with place.connect() as connection:
        connection.execute(INSERT, (place.topic, "key-", 1, 1))


def peak_memory(bench: Bench, rows: int, size: int) -> Callable[[Candidate], Values]:
    """Returns a function that measures the peak memory of a candidate while it drains a backlog."""

    def take(candidate: Candidate) -> Values:
        with at_work(bench, candidate) as (place, subject):
            shape = Shape("many", size)
            with closing(Backlog(place, subject, shape, shape.rows(rows))) as backlog:
                backlog.fill()
                peak = Peak({role: process.pid for role, process in subject.processes.items()})
                try:
                    backlog.drain(PATIENCE)
                finally:
                    found = peak.stop()
                delivered = backlog.delivered()
        return {**{f"{role} MiB": size for role, size in found.items()}, "records": delivered}

    return take


def writers(bench: Bench, seconds: float) -> Callable[[Candidate], Values]:
    """Returns a function that measures what an application gets done while a candidate harvests its rows.

    Four writers each commit one row after the other, as fast as they can.
    """

    def take(candidate: Candidate) -> Values:
        with at_work(bench, candidate) as (place, subject):
            if subject.processes:
                warm_up(place, subject)
            stop = _spawning.Event()
            pipes, processes = [], []
            for number in range(WRITERS):
                ours, theirs = _spawning.Pipe()
                deleting = pace(candidate, 1).deleting
                arguments = (place.bench_dsn, place.topic, f"writer-{number}-", deleting, stop)
                to = {"out": theirs}
                processes.append(
                    _spawning.Process(target=commit_rows, args=arguments, kwargs=to, daemon=True)
                )
                processes[-1].start()
                pipes.append(ours)
            try:
                for pipe in pipes:
                    pipe.recv()
                with Meter(place, subject) as meter:
                    watch(subject, seconds)
                    used = meter.stop()
                stop.set()
                taken = sorted(each for pipe in pipes for each in pipe.recv())
            finally:
                for process in processes:
                    process.kill()
                    process.join()
        rate = len(taken) / used["seconds"]
        found = {
            "commits /s": rate,
            "p50 ms": taken[len(taken) // 2],
            "p99 ms": taken[len(taken) * 99 // 100],
        }
        return {**found, **shares(used)}

    return take


def commit_rows(dsn: str, topic: str, key: str, deleting: bool, stop: Any, *, out: Connection) -> None:
    """Commits one row after the other until ``stop`` is set; then sends how long each took, in ms."""
    taken: list[float] = []
    with psycopg.connect(dsn) as connection:
        out.send("ready")
        while not stop.is_set():
            started = time.monotonic()
            row = len(taken)
            inserted = connection.execute(INSERT, (topic, key, row, row))
            if deleting:
                connection.execute(DELETE, ([identifier for (identifier,) in inserted],))
            connection.commit()
            taken.append(1000 * (time.monotonic() - started))
    out.send(taken)
