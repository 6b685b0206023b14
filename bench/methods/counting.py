"""Executes the same histories with each method, and counts what they show."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple, Self

import psycopg
from outbox_servers.finding import open_mysql
from outbox_servers.services import KafkaBroker, PostgresServer
from psycopg.conninfo import make_conninfo

from bench.methods.broker import Topic
from bench.methods.catalog import DELIVERIES, METHODS
from bench.methods.history import KINDS, History, generate, smallest
from bench.methods.judge import Verdict
from bench.methods.method import Method
from bench.methods.product import product
from bench.methods.servers import MySqlHistories, PostgresHistories, ProductHistories
from bench.methods.world import Server, World

STALL_SECONDS = 1.0
"""A stall is counted from so many seconds on: each harvester polls whenever time passes."""


class Bench:
    """The servers, and the methods on them; a context manager.

    Attributes:
        dsn: The database of the simple forms.
        bootstrap: The broker.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        settings: dict[str, str | int] = {"wal_level": "logical", "max_replication_slots": 4}
        settings["fsync"] = "off"  # no history crashes the server
        postgres = self._stack.enter_context(PostgresServer(settings=settings))
        self.bootstrap = self._stack.enter_context(KafkaBroker()).bootstrap
        self.dsn = postgres.dsn
        self._databases: dict[str, Server] = {}
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def prepared(self, name: str) -> Prepared:
        """Returns a method, ready to execute histories."""
        if name in DELIVERIES:
            return self._product(DELIVERIES[name])
        method = METHODS[name]
        return Prepared(method, self._database(method.database), self.topic(shared=False))

    def _database(self, kind: str) -> Server:
        if kind not in self._databases:
            self._databases[kind] = self._until_the_end(
                PostgresHistories(self.dsn)
                if kind == "postgres"
                else MySqlHistories(self._stack.enter_context(open_mysql()))
            )
        return self._databases[kind]

    def _product(self, delivery: str) -> Prepared:
        name = f"product_{delivery.replace('-', '_')}"
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        dsn = make_conninfo(self.dsn, dbname=name)
        topic = self.topic(shared=True)
        database = self._until_the_end(ProductHistories(dsn, topic.name))
        return Prepared(product(delivery, dsn, self.bootstrap), database, topic)

    def topic(self, *, shared: bool) -> Topic:
        """Creates a topic; ``shared`` says whether others than a simple form send to it."""
        topic = Topic(self.bootstrap, shared=shared)
        self._stack.callback(topic.close)
        return topic

    def _until_the_end(self, server: Server) -> Server:
        self._stack.callback(server.close)
        return server


class Prepared(NamedTuple):
    """A method, and what it works on."""

    method: Method
    server: Server
    topic: Topic

    def executed(self, history: History) -> Verdict:
        """Executes a history."""
        return World(self.server, self.method, self.topic).execute(history)


def counted(prepared: Prepared, histories: int, known: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a method shows in histories of each kind, and the smallest history with each anomaly.

    Args:
        prepared: The method.
        histories: How many of each kind.
        known: The smallest histories of an earlier run, which are kept if they still show their anomaly.
    """
    method = prepared.method
    kinds: dict[str, dict[str, int]] = {}
    found = {
        anomaly: each for anomaly, each in known.items() if shows(prepared, anomaly, tuple(each["history"]))
    }
    for kind in KINDS:
        if method.database == "mysql" and kind.name == "restore":
            continue
        shown: Counter[str] = Counter()
        for seed in range(histories):
            history = generate(kind, seed)
            verdict = prepared.executed(history)
            anomalies = [each for each in verdict.shown if _counts(verdict, each)]
            shown.update(anomalies)
            for anomaly in anomalies:
                if anomaly not in found:
                    shrunk = smallest(history, partial(shows, prepared, anomaly))
                    found[anomaly] = {"kind": kind.name, "history": list(shrunk)}
        kinds[kind.name] = dict(shown)
        print(f"{method.name}: {kind.name}: {dict(shown) or 'nothing'}", file=sys.stderr, flush=True)
    return {"histories": histories, "kinds": kinds, "smallest": found}


def shows(prepared: Prepared, anomaly: str, history: History) -> bool:
    """Executes a history; returns whether it shows an anomaly."""
    return _counts(prepared.executed(history), anomaly)


def _counts(verdict: Verdict, anomaly: str) -> bool:
    figure = asdict(verdict)[anomaly]
    return bool(figure > STALL_SECONDS if anomaly == "stalled" else figure)
