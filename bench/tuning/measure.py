"""Rates, latencies and the cost of being idle."""

from __future__ import annotations

import time
from collections.abc import Mapping
from threading import Event, Thread

import psutil
from confluent_kafka import Consumer, TopicPartition

from bench.tuning.cell import Cell
from bench.tuning.place import PARTITIONS, Servers, Site, cpu

LATENCY_SECONDS = 2.0
LATENCY_RATE = 100
IDLE_SECONDS = 3.0
QUIET_SECONDS = 2.0
"""After so long without a record a lane looks as seldom as it ever does."""

INSERT = """INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys,
kafka_header_values) VALUES (now(), %s, %s, %s, '{h}', '{v}')"""


def measured(servers: Servers, cell: Cell) -> Mapping[str, float]:
    """Measures a cell once.

    Returns:
        ``/s`` and ``cpu µs`` of the harvester a record, or what an idle one costs; and latencies.
    """
    with servers.site(cell) as site:
        if not cell.idle:
            site.fill(cell.rows)
        with site.harvester() as process:
            if cell.idle:
                return {**_latencies(site, single=True), **_idle(site, process)}
            used, rate = cpu(process), site.drained()
            left = site.left()
            rates = {"/s": rate, "cpu µs": 1e6 * (cpu(process) - used) / (cell.rows - left)}
            return rates if left else {**rates, **_latencies(site)}


def _idle(site: Site, process: psutil.Process) -> Mapping[str, float]:
    time.sleep(QUIET_SECONDS)
    began, used, ended = time.monotonic(), cpu(process), site.statements()
    time.sleep(IDLE_SECONDS)
    seconds = time.monotonic() - began
    return {
        "idle cpu %": 100 * (cpu(process) - used) / seconds,
        "idle statements/s": (site.statements() - ended) / seconds,
    }


def _latencies(site: Site, *, single: bool = False) -> Mapping[str, float]:
    """Returns latencies from commit to a consumer beside the broker, at a steady rate or one by one."""
    arrived: dict[int, float] = {}
    ready, over = Event(), Event()
    reader = Thread(target=_read, args=(site, arrived, ready, over))
    reader.start()
    ready.wait()
    sent: dict[int, float] = {}
    pause = 0.3 if single else 1 / LATENCY_RATE
    due = time.monotonic()
    count = 8 if single else int(LATENCY_RATE * LATENCY_SECONDS)
    for number in range(count):
        # Numbers that no record of the backlog has, so that each is known.
        value = f"latency-{number}".ljust(site.cell.size, ".")
        site.connection.execute(INSERT, (site.topic, f"key-{number % 50}", value))
        sent[number] = time.monotonic()
        due += pause
        time.sleep(max(0.0, due - time.monotonic()))
    deadline = time.monotonic() + 10
    while len(arrived) < count and time.monotonic() < deadline:
        time.sleep(0.02)
    over.set()
    reader.join()
    ages = sorted(1000 * (arrived[n] - sent[n]) for n in sent if n in arrived and n >= count // 10)
    if not ages:
        return {}
    return {"p50 ms": ages[len(ages) // 2], "p99 ms": ages[int(0.99 * (len(ages) - 1))]}


def _read(site: Site, arrived: dict[int, float], ready: Event, over: Event) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": site.bootstrap,
            "group.id": site.topic,
            "fetch.wait.max.ms": 5,
            "isolation.level": "read_committed",
        }
    )
    parts = [TopicPartition(site.topic, number) for number in range(PARTITIONS)]
    for part in parts:
        part.offset = consumer.get_watermark_offsets(part)[1]
    consumer.assign(parts)
    consumer.poll(0.1)
    ready.set()
    while not over.is_set():
        message = consumer.poll(0.1)
        if message is None or message.error() is not None:
            continue
        words = (message.value() or b"").rstrip(b".").split(b"-")
        if words[0] == b"latency":
            arrived.setdefault(int(words[1]), time.monotonic())
    consumer.close()
