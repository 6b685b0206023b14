"""What each method costs: the same stream and the same backlog, by real processes on real servers.

It builds on ``bench.compare``: its servers, its meter, its writer and consumer.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.compare.backlog import Backlog, Shape
from bench.compare.candidates import (
    Candidate,
    Nobody,
    Product,
    Subject,
    ending,
    logged,
    started,
    wait,
)
from bench.compare.databases import MYSQL, POSTGRES, database
from bench.compare.meter import Meter, Values
from bench.compare.peers import DEBEZIUM, Debezium
from bench.compare.results import machine
from bench.compare.servers import Place, Servers, found, open_servers, say
from bench.compare.traffic import Pace, Traffic
from bench.methods.catalog import DELIVERIES, METHODS
from bench.methods.method import Method

RATE = 300
"""Records a second of the stream."""
SHAPE = Shape(size=300)
LIMITS = {"METHODS_LIMIT": "500", "METHODS_GRACE": "2"}
NOBODY = "nobody"
ROLES = ("database", "broker", "subject")
PATIENCE = 15.0
"""Seconds that a backlog may take."""
JVM_PATIENCE = 120.0
"""Seconds that the first backlog of a program in Java may take."""
AFTERWARDS = 4.0
"""Seconds that records may take after the writer has stopped."""
COLUMNS = """
ALTER TABLE outbox ADD created double precision DEFAULT extract(epoch FROM now()),
ADD xid xid8 DEFAULT pg_current_xact_id()
"""
"""What some methods need beside the seed's columns; all have it, so that writers cost the same."""
OLDEST = """
SELECT coalesce(1000 * max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::float
FROM pg_stat_activity WHERE usename = 'subject' AND datname = current_database()
"""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured.

    Attributes:
        rounds: How often all methods take turns.
        idle: Seconds without writes.
        stream: Seconds of the stream.
        rows: Rows of the backlog.
        warm_up: Seconds for which the broker is kept busy first.
    """

    rounds: int = 2
    idle: float = 2.0
    stream: float = 5.0
    rows: int = 20_000
    warm_up: float = 30.0


class Simple(Candidate):
    """A method in its simple form, as a process of its own."""

    def __init__(self, method: Method) -> None:
        super().__init__(method.name)
        self.databases = (method.database,)
        self._method = method

    def install(self, place: Place) -> None:
        """Creates what it needs beside the outbox."""
        ddl = self._method.ddl
        with closing(place.connect()) as connection, connection.cursor() as cursor:
            # PyMySQL executes one statement at a time; a function of PostgreSQL has semicolons.
            for statement in filter(str.strip, [ddl] if POSTGRES in self.databases else ddl.split(";")):
                cursor.execute(statement)

    @contextmanager
    def running(self, place: Place) -> Iterator[Subject]:
        """Runs its process."""
        root = str(Path(__file__).parents[2])
        arguments = [self.name, place.dsn, place.servers.bootstrap, place.topic]
        command = [sys.executable, "-m", "bench.methods.harvest", *arguments]
        process = started("harvester", command, place, os.environ | LIMITS | {"PYTHONPATH": root})
        with ending(process):
            wait(process, logged(process, "ready"))
            yield Subject({"subject": process}, empties=self._method.deletes)


class Oldest:
    """Samples how long the subject's transactions are open, until it is stopped."""

    def __init__(self, place: Place) -> None:
        self.ms = 0.0
        self._connection = place.connect()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops sampling."""
        self._stop.set()
        self._thread.join()
        self._connection.close()

    def _follow(self) -> None:
        while not self._stop.wait(0.05):
            self.ms = max(self.ms, found(self._connection, OLDEST)[0])


class Costs:
    """One run.

    Args:
        effort: How much is measured.
        names: The methods; all if there are none.
    """

    def __init__(self, effort: Effort, names: Sequence[str]) -> None:
        self._effort = effort
        self._values: dict[str, list[Values]] = {}
        every: list[Candidate] = [
            Nobody(NOBODY),
            *map(Simple, METHODS.values()),
            *(Product(name, delivery, "inline", own_table=True) for name, delivery in DELIVERIES.items()),
            Debezium(f"Debezium {DEBEZIUM[POSTGRES].removesuffix('.Final')}", POSTGRES),
        ]
        self._candidates = [each for each in every if not names or each.name in {*names, NOBODY}]

    def run(self) -> dict[str, Any]:
        """Measures all methods in turns; returns the conditions, and method → the figures of each round."""
        with ExitStack() as stack:
            postgres = stack.enter_context(open_servers(database(POSTGRES, "local", {}), "4.1.0"))
            servers = {POSTGRES: postgres}
            if any(MYSQL in each.databases for each in self._candidates):
                mysql = database(MYSQL, "local", {})
                stack.enter_context(mysql)
                folder = Path(stack.enter_context(TemporaryDirectory(prefix="outbox-methods-")))
                servers[MYSQL] = Servers(mysql, postgres.kafka, folder)
            for each in self._candidates:
                each.prepare()
            postgres.warm_up(self._effort.warm_up)
            for turn in range(self._effort.rounds):
                shift = turn * len(self._candidates) // self._effort.rounds
                for each in (*self._candidates[shift:], *self._candidates[:shift]):
                    values = self._measured(each, servers[each.databases[0]])
                    self._values.setdefault(each.name, []).append(values)
                    say(f"{each.name}: " + ", ".join(f"{name} {value:.4g}" for name, value in values.items()))
            versions = {name: each.database.version() for name, each in servers.items()}
        return {"conditions": machine() | versions, "methods": self._values}

    def _measured(self, candidate: Candidate, servers: Servers) -> Values:
        with servers.place(own_table=candidate.own_table) as place:
            is_postgres = servers.database.name == POSTGRES
            if candidate.own_table:
                candidate.install(place)
            if is_postgres:
                with place.connect() as connection:
                    connection.execute(COLUMNS)
            if not candidate.own_table:
                candidate.install(place)
            with candidate.running(place) as subject:
                if subject.processes:
                    patience = JVM_PATIENCE if isinstance(candidate, Debezium) else PATIENCE
                    self._drained(place, subject, self._effort.rows // 5, patience)
                values = self._idle(place, subject)
                if is_postgres:
                    with closing(Oldest(place)) as oldest:
                        values |= self._streamed(place, subject)
                    values["transaction ms"] = oldest.ms
                if subject.processes:
                    values |= self._drained(place, subject, self._effort.rows, PATIENCE)
        return values

    def _idle(self, place: Place, subject: Subject) -> Values:
        time.sleep(1)
        with Meter(place, subject) as meter:
            time.sleep(self._effort.idle)
            used = meter.stop()
        shares = {f"idle {role} %": 100 * used.get(f"cpu {role} s", 0) / used["seconds"] for role in ROLES}
        return shares | {"idle statements /s": used.get("statements", 0) / used["seconds"]}

    def _streamed(self, place: Place, subject: Subject) -> Values:
        with Traffic(place, Pace(RATE)) as traffic:
            traffic.write()
            time.sleep(1)
            with Meter(place, subject) as meter:
                since = time.monotonic()
                time.sleep(self._effort.stream)
                used = meter.stop()
                until = time.monotonic()
            journal = traffic.finish(AFTERWARDS)
        span = {number: at for number, at in journal.committed.items() if since <= at < until}
        waits = sorted(
            1000 * (journal.arrived[each] - at) for each, at in span.items() if each in journal.arrived
        )
        shown = {f"p{share} ms": waits[share * len(waits) // 100] for share in (50, 99)} if waits else {}
        kept = {"committed": len(journal.committed), "missing": journal.missing, "invented": journal.foreign}
        return {**shown, **kept, "out of order": journal.disordered, **each_record("stream", used, len(span))}

    def _drained(self, place: Place, subject: Subject, rows: int, patience: float) -> Values:
        with closing(Backlog(place, subject, SHAPE, rows)) as backlog, Meter(place, subject) as meter:
            for process in subject.processes.values():
                process.pause()  # so that it finds all at once
            backlog.fill()
            meter.start()
            for process in subject.processes.values():
                process.resume()
            backlog.drain(patience)
            used = meter.stop()
            delivered = backlog.delivered()
        if delivered < rows:
            return {"drain missing": rows - delivered}
        return {"drain /s": delivered / used["seconds"], **each_record("drain", used, delivered)}


def each_record(what: str, used: Values, records: int) -> Values:
    """Returns what a record cost: CPU microseconds of each role, bytes of the log."""
    cpu = {f"{what} {role} µs": 1e6 * used.get(f"cpu {role} s", 0) / records for role in ROLES}
    return cpu | {f"{what} wal B": used["wal B"] / records}
