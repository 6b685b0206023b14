"""Ten outboxes over three databases of two kinds in three processes: who leads what; what faults disturb.

Starts two PostgreSQL servers, a MariaDB and a Kafka. An application writes into every outbox, and a consumer
notes the longest silence of each. Then one process is killed, and one database is stopped for a while. Prints
what was seen, and at last what an outbox costs in memory and connections.

    python -m bench.many_outboxes --away 60
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4

import psutil
from confluent_kafka import Message
from outbox_servers.services import KafkaBroker, MariaDbServer, PostgresServer

from bench.listening import Listening
from tests.harvesters import until
from tests.test_many_outboxes import PARTITIONS, Outboxes

OUTBOXES = 10


class Application(Outboxes):
    """Writes on when a database has come back."""

    def _write(self, label: str, settings: Any, ending: Event) -> None:
        while not ending.is_set():
            # A commit whose outcome is not known is repeated; the record may then arrive twice.
            with suppress(Exception):
                super()._write(label, settings, ending)
            ending.wait(0.2)


class Listener(Listening):
    """A consumer of all topics that notes when records of each outbox come."""

    def __init__(self, outboxes: Outboxes) -> None:
        self._arrivals: dict[str, list[float]] = defaultdict(list)
        self._skip = len(outboxes.topic) + 1
        topics = [f"{outboxes.topic}-{label}" for label in outboxes.sections]
        super().__init__(outboxes.kafka.bootstrap, topics, PARTITIONS, {"fetch.wait.max.ms": 20})

    def silences(self, since: float) -> dict[str, float]:
        """Returns outbox → its longest time without a record from ``since`` until now, in seconds."""
        now = time.time()
        return {
            label: max(
                later - earlier
                for earlier, later in pairwise([since, *(at for at in times if at >= since), now])
            )
            for label, times in sorted(self._arrivals.items())
        }

    def heard_all(self, since: float) -> bool:
        """Returns whether every outbox was heard since."""
        return all(times[-1] >= since for times in self._arrivals.values())

    def note(self, message: Message) -> None:
        """Notes when it came."""
        self._arrivals[(message.topic() or "")[self._skip :]].append(time.time())


def tell(what: str, silences: Mapping[str, float]) -> None:
    """Prints the longest silence of each outbox."""
    each = ", ".join(f"{label} {seconds:.1f} s" for label, seconds in silences.items())
    print(f"{what}: {each}", flush=True)


def settle(outboxes: Outboxes, counts: list[int]) -> float:
    """Waits until the leaders are spread like this; returns how many seconds that took."""
    started = time.monotonic()
    until(lambda: outboxes.counts() == counts, f"{counts}, not {outboxes.counts()}", 180, pause=0.2)
    return time.monotonic() - started


def play(outboxes: Outboxes, stopped: PostgresServer, away: float) -> None:
    """Plays all acts, and prints what was seen."""
    outboxes.create()
    listener = Listener(outboxes)
    outboxes.start("one")
    print(f"one process leads all after {settle(outboxes, [OUTBOXES]):.1f} s", flush=True)
    with outboxes.writing():
        time.sleep(3)
        began = time.time()
        outboxes.start("two")
        outboxes.start("three")
        print(f"two more join: they lead 3, 3 and 4 after {settle(outboxes, [3, 3, 4]):.1f} s")
        tell("longest silence meanwhile", listener.silences(began))
        costs(outboxes)
        kill_one(outboxes, listener)
        began = time.time()
        stopped.stop("immediate")
        time.sleep(away)
        tell(f"database 'second' stopped for {away:g} s", listener.silences(began))
        back = time.time()
        stopped.start()
        served = time.time()
        until(lambda: listener.heard_all(served), "all are heard", 120)
        heard, start = time.time() - served, served - back
        print(f"all outboxes are heard {heard:.1f} s after it serves ({start:.1f} s to start)", flush=True)
    outboxes.wait_until_empty(120)
    twice, written = outboxes.audit(), sum(outboxes.written.values())
    print(f"audit: all {written} records arrived in order, {twice} of them twice")
    for process in outboxes.processes[1:]:
        lines = [line for line in process.lines() if " WARNING" in line.text or " ERROR" in line.text]
        print(f"process {process.name}: {len(lines)} warnings; stopped in {process.leave():.1f} s")
    listener.close()


def kill_one(outboxes: Outboxes, listener: Listener) -> None:
    """Kills a process, and waits until the others share what it led."""
    led = [label for label, leader in outboxes.leaders().items() if leader == "one"]
    began = time.time()
    outboxes.processes[0].kill()
    until(lambda: sum(outboxes.counts()) == OUTBOXES, "all are taken over", 60)
    time.sleep(2)
    tell(f"one process killed, which led {', '.join(led)}", listener.silences(began))
    print(f"they lead 5 and 5 after {settle(outboxes, [5, 5]):.1f} s more", flush=True)
    time.sleep(2)


def costs(outboxes: Outboxes) -> None:
    """Prints memory and connections of each process."""
    broker = int(outboxes.kafka.bootstrap.rpartition(":")[2])
    for process in outboxes.processes:
        found = psutil.Process(process.pid)
        ports = [each.raddr.port for each in found.net_connections() if each.raddr]
        memory, threads = found.memory_full_info().pss / 2**20, found.num_threads()
        databases, kafka = sum(port != broker for port in ports), ports.count(broker)
        said = f"{memory:.0f} MiB, {threads} threads, {databases} connections to databases, {kafka} to Kafka"
        print(f"process {process.name}: {said}", flush=True)


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--away", type=float, default=60.0, help="for how long a database is stopped, in seconds"
    )
    arguments = parser.parse_args()
    with ExitStack() as stack:
        print("starting PostgreSQL twice, MariaDB and Kafka …", file=sys.stderr)
        first, second = stack.enter_context(PostgresServer()), stack.enter_context(PostgresServer())
        maria, kafka = stack.enter_context(MariaDbServer()), stack.enter_context(KafkaBroker())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="outbox-bench-")))
        databases = {
            "first": ("postgres", first.create_database("first"), 4),
            "second": ("postgres", second.create_database("second"), 3),
            "maria": ("mysql", f"{maria.create_database('maria')}?ssl-mode=DISABLED", 3),
        }
        outboxes = Application(folder, kafka, f"bench-{uuid4().hex[:8]}", databases, session=2.0)
        try:
            play(outboxes, second, arguments.away)
        finally:
            for process in outboxes.processes:
                process.close()


if __name__ == "__main__":
    main()
