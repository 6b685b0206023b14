"""Sends runs as a lane does, and checks what is reported and what is in the log."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from outbox_api import Deliveries, Failure, MarkedRecord
from outbox_kafka.sender import KafkaSender

from .kafka_access import committed

PARTITIONS = 4


def run(topic: str, key: str, count: int, size: int = 0, first: int = 0) -> list[MarkedRecord]:
    """Returns a run: the values are its numbers, with as many letters behind as it takes."""
    return [MarkedRecord(first + each, topic, key, f"{each:06}" + size * "x") for each in range(count)]


def runs(topic: str, keys: int, count: int, size: int = 0) -> list[list[MarkedRecord]]:
    """Returns runs of several keys."""
    return [run(topic, f"k{key}", count, size, key * count) for key in range(keys)]


@dataclass
class Sent:
    """What was handed over, and what was reported.

    Attributes:
        delivered, failed: As reported.
        handed: The ids of all records that were handed over.
    """

    delivered: list[MarkedRecord] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    handed: list[int] = field(default_factory=list)

    def add(self, reports: Deliveries) -> None:
        self.delivered += reports.delivered
        self.failed += reports.failed

    @property
    def reported(self) -> int:
        return len(self.delivered) + len(self.failed)

    def failed_ids(self) -> set[int]:
        return {each.record.id for each in self.failed}


def send_runs(
    sender: KafkaSender,
    wanted: Iterable[list[MarkedRecord]],
    *,
    between: Callable[[], object] = lambda: None,
    amid: Callable[[], object] = lambda: None,
    limit: float = 90.0,
) -> Sent:
    """Sends the first record of each run, and then all that follow those that are delivered.

    Checks that each record that was handed over is reported once.

    Args:
        sender: The sender.
        wanted: The runs, of one key each.
        between: Called before the others are sent.
        amid: Called when they are.
        limit: How many seconds it may take.
    """
    wait_until_ready(sender)
    firsts = {each[0].id: each for each in wanted}
    sent = Sent()
    hand(sender, sent, [each[0] for each in firsts.values()], [])
    gather_all(sender, sent, limit)
    between()
    following = [
        other._replace(partition=first.partition)
        for first in sent.delivered
        if first.partition is not None
        for other in firsts[first.id][1:]
    ]
    hand(sender, sent, [], following)
    amid()
    gather_all(sender, sent, limit)
    return sent


def wait_until_ready(sender: KafkaSender) -> None:
    """Waits until others follow the first records of runs."""
    while not sender._runs.ready:
        sender._runs.open()
        sender.poll(0.05)


def hand(sender: KafkaSender, sent: Sent, first: list[MarkedRecord], others: list[MarkedRecord]) -> None:
    sent.handed += [each.id for each in (*first, *others)]
    sender.send_runs(first, others)


def gather_all(sender: KafkaSender, sent: Sent, limit: float) -> None:
    """Polls until all is reported, and makes sure that nothing is reported twice."""
    deadline = time.monotonic() + limit
    while sent.reported < len(sent.handed):
        assert time.monotonic() < deadline, f"{len(sent.handed) - sent.reported} without a report"
        sent.add(sender.poll(0.1))
    sent.add(sender.poll(0.1))
    counts = Counter([each.id for each in sent.delivered] + [each.record.id for each in sent.failed])
    assert counts == Counter(sent.handed), "each is reported once"


def check_prefixes(bootstrap: str, wanted: list[list[MarkedRecord]], sent: Sent, partitions: int = 1) -> int:
    """Checks that the log has a prefix of each run, and at least what was delivered; returns its length."""
    [topic] = {each.topic for run_ in wanted for each in run_}
    there: dict[str, list[str]] = {}
    for message in committed(bootstrap, topic, partitions):
        there.setdefault((message.key() or b"").decode(), []).append((message.value() or b"")[:6].decode())
    delivered = {each.id for each in sent.delivered}
    for run_ in wanted:
        key = run_[0].key
        values = [f"{each.id - run_[0].id:06}" for each in run_]
        got = there.get(key, [])
        assert got == values[: len(got)], f"{key}: no prefix: {got[:20]} …"
        flags = [each.id in delivered for each in run_]
        count = sum(flags)
        assert all(flags[:count]), f"{key}: what was delivered is no prefix"
        assert count <= len(got), f"{key}: {count} delivered, {len(got)} in the log"
    return sum(map(len, there.values()))
