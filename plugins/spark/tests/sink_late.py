"""Which requests of a task of the sink a proxy keeps."""

from __future__ import annotations

from outbox_servers.late_proxy import LateProxy, Match, kafka_requests
from pyspark_outbox_kafka.options import CHECKPOINT_TOPIC

PRODUCE, INITIALIZE, ADD_PARTITIONS, END = 0, 22, 24, 26
"""Kafka's numbers of requests."""
WHAT = (
    "of its producer",
    "that it opens",
    "to add its topic",
    "with its rows",
    "with its checkpoint",
    "to commit its rows",
)


def sent(what: str, topic: str) -> Match:
    """Returns how to recognize one of ``WHAT``, of a task that writes into a topic."""
    rows, checkpoint = (kafka_requests(PRODUCE, each) for each in (topic, CHECKPOINT_TOPIC))
    return {
        "of its producer": kafka_requests(INITIALIZE),
        "that it opens": checkpoint,
        "to add its topic": kafka_requests(ADD_PARTITIONS, topic),
        "with its rows": rows,
        "with its checkpoint": behind(rows, checkpoint),
        "to commit its rows": behind(rows, kafka_requests(END)),
    }[what]


def behind(first: Match, then: Match) -> Match:
    """Recognizes the first request of a kind behind one of another."""
    seen = False

    def match(request: bytes) -> bool:
        nonlocal seen
        if not seen:
            seen = first(request)
            return False
        return then(request)

    return match


def refusing(proxy: LateProxy, wanted: Match) -> Match:
    """Has a proxy refuse new connections from the wanted request on, so that its client cannot repeat it."""

    def match(request: bytes) -> bool:
        found = wanted(request)
        proxy.refuses = proxy.refuses or found
        return found

    return match
