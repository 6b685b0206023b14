"""Counts recoveries and aborted batches of exactly-once delivery in each round.

Both counts are in the metrics that lanes write beside their fence once a second. The last ones of a lane that
ends sooner, or is killed, may be missing. Recoveries after a change of the number of lanes are in the
leader's log. The records of aborted transactions are counted completely: they are on the topic, where readers
of uncommitted messages see them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from time import monotonic

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from ..shop import PARTITIONS  # noqa: TID252 - pytest gives tests no absolute name
from .judge import Round
from .site import Site

_SETTLED = re.compile(r"recovered former lane .*: (\d+) rows were in the log already")
_GLANCE = 0.5
_READ_SECONDS = 30.0


def enter_transactions(site: Site, rounds: Sequence[Round]) -> None:
    """Adds to each round the counts from its beginning to that of the next, after everything was read."""
    recovered, aborted = [*site.beats.risen("recovered"), *_settled(site)], site.beats.risen("aborted")
    hidden = list(_hidden(site))
    for each, following in zip_longest(rounds, rounds[1:]):
        ends = following.began if following else float("inf")
        found = [rows for at, rows in recovered if each.began <= at < ends and rows]
        each.recoveries, each.recovered = len(found), sum(found)
        each.aborted = sum(batches for at, batches in aborted if each.began <= at < ends)
        each.hidden = sum(each.began <= at < ends for at in hidden)
        site.note(
            "transactions",
            fault=each.fault.name,
            recoveries=each.recoveries,
            recovered=each.recovered,
            aborted=each.aborted,
            hidden=each.hidden,
            takeover=each.takeover,
        )


def _settled(site: Site) -> Iterator[tuple[float, int]]:
    """Yields when a lane of an earlier leader was recovered, and how many of its rows were in the log."""
    for harvester in site.fleet.harvesters:
        for at, text in harvester.lines():
            if found := _SETTLED.search(text):
                yield at, int(found[1])


def _hidden(site: Site) -> Iterator[float]:
    """Yields the send time of each record that readers of committed messages did not receive."""
    consumer = Consumer(
        {
            "bootstrap.servers": site.kafka.bootstrap,
            "group.id": "witness-of-all",
            "isolation.level": "read_uncommitted",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        left = set(range(PARTITIONS))
        consumer.assign([TopicPartition(site.shop.topic, number, OFFSET_BEGINNING) for number in left])
        ends = monotonic() + _READ_SECONDS
        while left and monotonic() < ends:
            for message in consumer.consume(1000, _GLANCE):
                if message.error() is not None:
                    left.discard(message.partition() if message.partition() is not None else -1)
                elif (message.partition(), message.offset()) not in site.witness.places:
                    yield message.timestamp()[1] / 1000
    finally:
        consumer.close()
