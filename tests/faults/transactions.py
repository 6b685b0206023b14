"""Counts recoveries and aborted batches of exactly-once delivery in each round.

Both counts are in the metrics that lanes write beside their fence once a second. The last ones of a lane that
ends sooner, or is killed, may be missing. Recoveries after a change of the number of lanes are in the
leader's log. The records of aborted transactions are counted completely: they are on the topic, where readers
of uncommitted messages see them. Torn transactions are found in the files of a broker that has a copy of
everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from time import monotonic

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from .judge import Round
from .site import Site
from .torn import torn

_SETTLED = re.compile(r"former lane .*: (\d+) rows were in the log already")
_DOUBTED = re.compile(r"a transaction with \d+ records had an unknown outcome: (\d+) of them are in the log")
_GLANCE = 0.5
_READ_SECONDS = 30.0


def enter_transactions(site: Site, rounds: Sequence[Round]) -> None:
    """Adds to each round the counts from its beginning to that of the next, after everything was read."""
    recovered = [*site.beats.risen("recovered"), *_said(site, _SETTLED)]
    aborted, doubted = site.beats.risen("aborted"), list(_said(site, _DOUBTED))
    hidden, halves = list(_hidden(site)), list(_torn(site))
    for each, following in zip_longest(rounds, rounds[1:]):
        ends = following.began if following else float("inf")
        found = [rows for at, rows in recovered if each.began <= at < ends and rows]
        each.recoveries, each.recovered = len(found), sum(found)
        each.aborted = sum(batches for at, batches in aborted if each.began <= at < ends)
        each.hidden = sum(each.began <= at < ends for at in hidden)
        each.torn = sum(each.began <= at < ends for at in halves)
        rows_found = [rows for at, rows in doubted if each.began <= at < ends]
        each.doubted, each.doubted_found = len(rows_found), sum(rows_found)
        site.note(
            "transactions",
            fault=each.fault.name,
            recoveries=each.recoveries,
            recovered=each.recovered,
            aborted=each.aborted,
            hidden=each.hidden,
            torn=each.torn,
            doubted=each.doubted,
            doubted_found=each.doubted_found,
            takeover=each.takeover,
        )


def _said(site: Site, words: re.Pattern[str]) -> Iterator[tuple[float, int]]:
    """Yields when a harvester has said this of a recovery, and how many rows it found in the log."""
    for harvester in site.fleet.harvesters:
        for at, text in harvester.lines():
            if found := words.search(text):
                yield at, int(found[1])


def _torn(site: Site) -> Iterator[float]:
    """Yields the time of the first record of each torn transaction."""
    site.brokers.settle()
    for parts in torn(site.brokers.each[0].folder / "data", site.shop.topic):
        site.note("torn", parts=parts)
        yield parts[0].first_ms / 1000


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
        left = set(range(site.setup.partitions))
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
