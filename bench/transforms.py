"""Measures what transforms cost for each record, in CPU time: no broker, one process, both modes."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from typing import Any

from outbox_api import Deliveries, Failure, MarkedRecord, Sender, TransactionalSender
from outbox_core.config import configure
from outbox_core.transforms.chain import Chain
from outbox_core.transforms.senders import TransformingSender, TransformingTransactionalSender

RECORDS, WAVE, ROUNDS = 10_000, 500, 15
VALUE = json.dumps(
    {"order": 7, "region": "eu", "customer": {"email": "a@b.example", "name": "A"}, "lines": [1, 2]}
)


class Prompt:
    """A broker that acknowledges everything at once, in either mode."""

    location = "here"

    def __init__(self) -> None:
        self._sent: Sequence[MarkedRecord] = ()

    def send(self, records: Sequence[MarkedRecord]) -> None:
        """Keeps the records."""
        self._sent = records

    def poll(self, timeout: float) -> Deliveries:  # noqa: ARG002 - the contract
        """Acknowledges them."""
        sent, self._sent = self._sent, ()
        return Deliveries(list(sent))

    def publish(self, records: Sequence[MarkedRecord], checkpoint: str) -> list[Failure]:  # noqa: ARG002 - likewise
        """Takes everything."""
        return []


CHAINS: dict[str, list[object]] = {
    "none": [],
    "identity": ["identity"],
    "topic": [{"driver": "topic", "to": "public.{topic}"}],
    "filter by topic": [{"driver": "filter", "drop": {"topic": "internal.*"}}],
    "redact": [{"driver": "redact", "fields": ["customer.email"]}],
    "filter, redact, identity": [
        {"driver": "filter", "drop": {"topic": "internal.*"}},
        {"driver": "redact", "fields": ["customer.email"]},
        "identity",
    ],
}


def chain_of(transforms: list[object]) -> Chain:
    """Returns the chain of a configuration."""
    settings = configure({"harvest": {"dataSource": "x", "transform": transforms}}, source="bench")
    return Chain.of(settings.harvest.transforms, lambda: "abcdefghijkl")


def one_by_one(sender: Sender, records: Sequence[MarkedRecord]) -> float:
    """Returns the CPU time of a record in microseconds, with at-least-once delivery."""
    started = time.process_time()
    for start in range(0, len(records), WAVE):
        sender.send(records[start : start + WAVE])
        sender.poll(0)
    return (time.process_time() - started) / len(records) * 1e6


def at_once(sender: TransactionalSender, records: Sequence[MarkedRecord]) -> float:
    """Returns the same with exactly-once delivery."""
    started = time.process_time()
    sender.publish(records, "checkpoint")
    return (time.process_time() - started) / len(records) * 1e6


def main() -> None:
    chains = {name: chain_of(transforms) for name, transforms in CHAINS.items()}
    records = [MarkedRecord(n, "orders", "key", VALUE, [("a", "1")]) for n in range(1, RECORDS + 1)]
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in chains}
    for _ in range(ROUNDS):
        for name, chain in chains.items():
            broker: Any = Prompt()
            sender = TransformingSender(broker, chain, lambda _: "", lambda: True) if chain else broker
            batches = TransformingTransactionalSender(broker, chain, lambda _: "")
            seen[name].append((one_by_one(sender, records), at_once(batches, records)))
    for name, rounds in seen.items():
        single, batch = map(statistics.median, zip(*rounds, strict=True))
        print(f"{name:26s} at-least-once {single:6.2f} us   exactly-once {batch:6.2f} us a record")


if __name__ == "__main__":
    main()
