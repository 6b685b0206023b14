"""Steady traffic: latency, recovery after an outage, a snapshot that is held open."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import psycopg

from bench.compare.backlog import Backlog, Shape, fill
from bench.compare.bench import Bench
from bench.compare.candidates import Candidate, CandidateError, Subject
from bench.compare.drain import at_work
from bench.compare.meter import Meter, Values
from bench.compare.peers import Debezium
from bench.compare.servers import Place
from bench.compare.traffic import Journal, Pace, Traffic

WARM_UP_ROWS = 10_000
WARM_UP_PATIENCE = 120.0
WARM_UP_SECONDS = 2.0
PATIENCE = 20.0
"""Seconds that records may take after the writer has stopped."""
CAUGHT_UP = 1000.0
"""Milliseconds; a candidate whose records are all younger when they arrive has recovered."""
QUARTERS = 4


def latency(bench: Bench, rate: int, seconds: float) -> Callable[[Candidate], Values]:
    """Returns a function that measures the latencies of one candidate at one rate."""

    def take(candidate: Candidate) -> Values:
        with at_work(bench, candidate) as (place, subject):
            warm_up(place, subject)
            with Traffic(place, pace(candidate, rate)) as traffic:
                traffic.write()
                time.sleep(WARM_UP_SECONDS)
                with Meter(place, subject) as meter:
                    since = time.monotonic()
                    watch(subject, seconds)
                    used = meter.stop()
                journal = traffic.finish(PATIENCE)
        return {**percentiles(journal.latencies(since)), **faults(journal), **shares(used)}

    return take


def recovery(bench: Bench, rate: int, outage: float, patience: float) -> Callable[[Candidate], Values]:
    """Returns a function that measures how a candidate catches up.

    It was stopped for a while; its rows of that time are written at once, in transactions of a second each.
    Then it starts, while writers go on at the same rate: *live* rows, from when it is ready until it has
    recovered.
    """

    def take(candidate: Candidate) -> Values:
        with bench.servers.place(own_table=candidate.own_table) as place:
            candidate.install(place)
            with candidate.running(place) as subject:
                warm_up(place, subject)
            rows = int(rate * outage)
            for _ in range(int(outage)):
                fill(place, Shape(), rate, tidy=False)
            before = place.servers.written(place.topic)
            with Traffic(place, pace(candidate, rate)) as traffic:
                traffic.write()
                started = time.monotonic()
                with candidate.running(place) as subject, Meter(place, subject) as meter:
                    ready = time.monotonic()
                    while place.servers.written(place.topic) - before < rows:
                        if time.monotonic() - started > patience:
                            break
                        watch(subject, 0.1)
                    backlog = time.monotonic()
                    delivered = place.servers.written(place.topic) - before
                    watch(subject, 3)
                    used = meter.stop()
                    journal = traffic.finish(PATIENCE)
        recovered = caught_up(journal)
        # Of a second at least, so that there are some.
        live = percentiles(journal.latencies(ready, max(recovered, ready + 1)))
        return {
            "recovery s": recovered - started,
            **{f"live {name}": live[name] for name in ("p50 ms", "p99 ms")},
            "start s": ready - started,
            "backlog /s": delivered / (backlog - ready),
            "cpu s": used["cpu s"],
            **faults(journal),
        }

    return take


def snapshot(bench: Bench, rate: int, seconds: float, rows: int) -> Callable[[Candidate], Values]:
    """Returns a function that measures latencies and rates while another session holds a snapshot open."""

    def take(candidate: Candidate) -> Values:
        with at_work(bench, candidate) as (place, subject):
            warm_up(place, subject)
            with held_snapshot(place):
                values = {"/s at the start": burst(place, subject, rows)}
                with Traffic(place, pace(candidate, rate)) as traffic:
                    traffic.write()
                    since = time.monotonic()
                    watch(subject, seconds)
                    journal = traffic.finish(PATIENCE)
                for quarter in range(QUARTERS):
                    start, end = (since + seconds * (quarter + n) / QUARTERS for n in (0, 1))
                    found = percentiles(journal.latencies(start, end))
                    values[f"p50 ms, quarter {quarter + 1}"] = found["p50 ms"]
                values["/s at the end"] = burst(place, subject, rows)
        return {
            **values,
            **faults(journal),
            "end / start": values["/s at the end"] / values["/s at the start"],
        }

    return take


def burst(place: Place, subject: Subject, rows: int) -> float:
    """Returns the rate at which a small backlog is drained, without a vacuum before it."""
    with closing(Backlog(place, subject, Shape(), rows, tidy=False)) as backlog:
        backlog.fill()
        started = time.monotonic()
        backlog.drain(60)
        seconds = time.monotonic() - started
        return backlog.delivered() / seconds


def warm_up(place: Place, subject: Subject) -> None:
    """Drains a small backlog, so that caches and compilers are warm."""
    with closing(Backlog(place, subject, Shape(), WARM_UP_ROWS)) as backlog:
        backlog.fill()
        backlog.drain(WARM_UP_PATIENCE)
        backlog.delivered()
        if backlog.left:
            raise CandidateError(f"{backlog.left} of {WARM_UP_ROWS} rows to warm up are not delivered")


def watch(subject: Subject, seconds: float) -> None:
    """Waits; checks meanwhile that the candidate is alive."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        subject.check()
        time.sleep(min(left, 0.5))


def pace(candidate: Candidate, rate: int) -> Pace:
    """Returns the pace of the application that a candidate needs."""
    return Pace(rate, deleting=isinstance(candidate, Debezium) and candidate.deleting)


@contextmanager
def held_snapshot(place: Place) -> Iterator[None]:
    """Holds a snapshot open in another session, as a long report or a backup does."""
    with psycopg.connect(place.bench_dsn) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT 1 FROM outbox LIMIT 1")
        yield
        connection.rollback()


def percentiles(latencies: list[float]) -> Values:
    """Returns percentiles of ascending latencies in ms."""
    if not latencies:
        raise CandidateError("nothing was written in this span")
    at = {"p50 ms": 0.5, "p99 ms": 0.99, "p99.9 ms": 0.999}
    found = {
        name: latencies[min(len(latencies) - 1, int(share * len(latencies)))] for name, share in at.items()
    }
    return {**found, "max ms": latencies[-1]}


def faults(journal: Journal) -> Values:
    """Returns what no harvester should do, and repeats."""
    return {
        "missing": journal.missing,
        "repeats": journal.repeats,
        "out of order": journal.disordered,
        "foreign": journal.foreign,
    }


def shares(used: Values) -> Values:
    """Returns CPU as percent of one core, and WAL and statements per second."""
    seconds = used["seconds"]
    found = {
        f"{name.removesuffix(' s')} %": 100 * spent / seconds
        for name, spent in used.items()
        if name.startswith("cpu")
    }
    for name in ("wal B", "syncs", "statements"):
        if name in used:
            found[f"{name} /s"] = used[name] / seconds
    return found


def caught_up(journal: Journal) -> float:
    """Returns the time from which on all records were young when they arrived."""
    old = [
        arrived
        for number, arrived in journal.arrived.items()
        if number in journal.committed and 1000 * (arrived - journal.committed[number]) > CAUGHT_UP
    ]
    return max(old, default=min(journal.arrived.values(), default=journal.ended))
