"""A method as a process of its own, which harvests until it is killed: what ``costs`` measures.

``python -m bench.methods.harvest METHOD DSN BOOTSTRAP TOPIC``
"""

from __future__ import annotations

import sys
import time
from multiprocessing import Process
from typing import Any

import psycopg
from confluent_kafka import Producer
from outbox_servers.services.external import connect_mysql

from bench.methods.catalog import METHODS
from bench.methods.method import Place, RefusedError, Row

PAUSES = (0.01, 0.1)
"""Seconds after a poll that found nothing: the first, and the longest; those of outbox."""


class Wall:
    """The real clock."""

    @property
    def now(self) -> float:
        """Seconds since 1970."""
        return time.time()


class Pipelined:
    """A producer that sends on while others are in flight; keys keep their order."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.sent = 0
        self._topic = topic
        self._errors: list[object] = []
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
        )

    def send(self, row: Row) -> None:
        """Sends a record."""
        self.sent += 1
        self._producer.produce(self._topic, row.value, row.key, on_delivery=self._report)
        self._producer.poll(0)

    def confirmed(self) -> None:
        """Waits for the acknowledgements."""
        self._producer.flush()
        if self._errors:
            raise RefusedError(str(self._errors.pop()))

    def _report(self, error: object, _message: object) -> None:
        if error is not None:
            self._errors.append(error)


def connected(dsn: str) -> Any:
    """Connects to PostgreSQL or MySQL, in autocommit mode."""
    if dsn.startswith("mysql:"):
        return connect_mysql(dsn, autocommit=True)
    return psycopg.connect(dsn, autocommit=True)


def harvest(name: str, dsn: str, bootstrap: str, topic: str) -> None:
    """Harvests until the process is killed."""
    broker = Pipelined(bootstrap, topic)
    harvester = METHODS[name].start(Place(connected(dsn), broker, Wall(), {}))
    pause, longest = PAUSES
    ready = False
    while True:
        before = broker.sent
        for _ in harvester.poll():
            pass
        if not ready:
            print("ready", flush=True)
            ready = True
        pause = PAUSES[0] if broker.sent > before else min(2 * pause, longest)
        if broker.sent == before:
            time.sleep(pause)


def main(name: str, *arguments: str) -> None:
    """Starts as many workers as the method has."""
    for _ in range(METHODS[name].workers - 1):
        Process(target=harvest, args=(name, *arguments), daemon=True).start()
    harvest(name, *arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
