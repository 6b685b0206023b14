"""All candidates by name."""

from __future__ import annotations

from pathlib import Path

from bench.compare.candidates import Candidate, Nobody, Product
from bench.compare.loops import Loop, Own
from bench.compare.peers import Debezium, DebeziumExactlyOnce, Goharvest

DELIVERIES = ("exactly-once", "at-least-once")
ENGINES = ("spark", "inline")
MODES = tuple(f"{delivery}/{engine}" for delivery in DELIVERIES for engine in ENGINES)
PEERS = ("debezium", "debezium/deleting", "goharvest", "goharvest/tuned")
LANES = (1, 2, 4, 8)

TUNED = {"maxInFlightRecords": 10_000, "markQueryRecords": 1000, "sendBuffer": 1000}
"""The limits of goharvest that gave the highest rate."""
LARGE = {"max.batch.size": "20480", "max.queue.size": "81920", "poll.interval.ms": "5"}
"""Larger batches and a shorter pause for Debezium."""


def candidates(database: str, goharvest: Path | None) -> dict[str, Candidate]:
    """Returns name → candidate, those that work with a database.

    Args:
        database: Its name.
        goharvest: Its repository or its built program; None if there is none.
    """
    found: list[Candidate] = [
        Product(f"{delivery}/{engine}{suffix}", delivery, engine, own_table=bool(suffix))
        for suffix in ("", "/own-table")
        for delivery in DELIVERIES
        for engine in ENGINES
    ]
    found += [
        Product(f"{delivery}/{engine}/{lanes}-lanes", delivery, engine, lanes=lanes)
        for delivery in DELIVERIES
        for engine in ENGINES
        for lanes in LANES
    ]
    patient = {"failures": {"mostParkedKeys": 10_000}}
    found += [
        Product(f"{delivery}/{engine}/parking", delivery, engine, harvest=patient)
        for delivery in DELIVERIES
        for engine in ENGINES
    ]
    found += [
        Debezium("debezium", database),
        Debezium("debezium/deleting", database, deleting=True),
        Debezium("debezium/tuned", database, connector=LARGE, worker={"producer.linger.ms": "5"}),
        DebeziumExactlyOnce("debezium/exactly-once", database, connector=LARGE),
        Goharvest("goharvest", goharvest, {}),
        Goharvest("goharvest/tuned", goharvest, TUNED),
        Loop("loop/flush", "flush", "mark"),
        Loop("loop/commit", "commit", "mark"),
        Loop("database/mark", "discard", "mark"),
        Loop("database/select", "discard", "select"),
        Own("own/mark", "mark"),
        Own("own/advance", "advance"),
        Nobody("nobody"),
    ]
    return {each.name: each for each in found if database in each.databases}
