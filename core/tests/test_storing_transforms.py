"""Transforms that store something before what they make is published, in both modes; a store that is away."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from outbox_api import (
    Attempt,
    Deliveries,
    Failure,
    Finding,
    Found,
    MarkedRecord,
    Outgoing,
    TransformError,
    TransformUnavailable,
)
from outbox_core.delivery.retries import Attempts, RetryPolicy
from outbox_core.settings import Failures
from outbox_core.transforms import senders
from outbox_core.transforms.chain import Chain
from outbox_core.transforms.senders import TransformingSender, TransformingTransactionalSender


class Stores:
    """Publishes a reference to what it has stored; what is as ``refused`` can never be."""

    def __init__(self) -> None:
        self.stored: list[object] = []
        self.away = False

    def store(self, record: Outgoing) -> None:
        if record.value == "refused":
            raise TransformError("it is refused")
        if record.value == "breaks":
            raise ValueError(record.value)
        if self.away:
            raise TransformUnavailable("the store is away")
        self.stored.append(record.value)

    def check(self) -> list[Finding]:
        return []

    def apply(self, record: Outgoing) -> list[Outgoing]:
        return [record._replace(value=f"claim {record.value!s}")]


class Broker:
    """Takes what was stored, and nothing else; in transactions, or record by record."""

    location = "here"

    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        self.log: list[object] = []
        self.sent: list[MarkedRecord] = []

    def take(self, record: MarkedRecord) -> None:
        assert str(record.value).removeprefix("claim ") in self.stores.stored
        self.log.append(record.value)

    def send(self, records: Sequence[MarkedRecord]) -> None:
        for record in records:
            self.take(record)
            self.sent.append(record)

    def poll(self, timeout: float) -> Deliveries:
        sent, self.sent = self.sent, []
        return Deliveries(delivered=sent)

    def publish(self, records: Sequence[MarkedRecord], checkpoint: str) -> list[Failure]:
        for record in records:
            self.take(record)
        return []

    def attempt(self, location: str = "") -> Attempt | None:
        return Attempt("checkpoint")

    def find(self, records: Sequence[MarkedRecord], trace: str) -> Found:
        return Found([record.id for record in records if record.value in self.log])


def row(number: int, value: str | None = None, key: str | None = None) -> MarkedRecord:
    return MarkedRecord(number, "t", key or f"k{number}", value or f"v{number}")


def chain_of(stores: Stores) -> Chain:
    return Chain([("stores", stores)], "f" * 16)


def sending(broker: Broker, leading: Sequence[bool] = (True,)) -> TransformingSender:
    chain = chain_of(broker.stores)
    return TransformingSender(broker, chain, lambda _: "", lambda: leading[-1])  # type: ignore[arg-type]


def publishing(broker: Broker) -> TransformingTransactionalSender:
    return TransformingTransactionalSender(broker, chain_of(broker.stores), lambda _: "")  # type: ignore[arg-type]


def reports(sender: TransformingSender, rows: int) -> Deliveries:
    """Polls until so many rows are reported."""
    found = Deliveries()
    while len(found.delivered) + len(found.failed) < rows:
        more = sender.poll(0)
        found.delivered += more.delivered
        found.failed += more.failed
    return found


def test_what_is_published_was_stored_before():
    broker = Broker(Stores())
    sender = sending(broker)
    sender.send([row(1), row(2)])
    assert [each.id for each in reports(sender, 2).delivered] == [1, 2]
    assert publishing(broker).publish([row(3), row(4)], "checkpoint") == []
    assert broker.stores.stored == ["v1", "v2", "v3", "v4"]
    assert broker.log == ["claim v1", "claim v2", "claim v3", "claim v4"]


@pytest.mark.parametrize(
    ("value", "reason", "retryable"),
    [
        ("large", "transform 'stores': the store is away", True),
        ("refused", "transform 'stores': it is refused", False),
        ("breaks", "transform 'stores' raised ValueError", False),
    ],
)
def test_a_store_that_is_away_is_a_failure_that_passes_and_any_other_error_is_the_rows(
    value: str, reason: str, retryable: bool
):
    broker = Broker(Stores())
    broker.stores.away = True
    sender = sending(broker)
    sender.send([row(1, value)])
    [sent] = reports(sender, 1).failed
    [published] = publishing(broker).publish([row(1, value)], "checkpoint")
    for failure in (sent, published):
        assert (failure.record.id, failure.retryable) == (1, retryable)
        assert failure.reason.startswith(reason)
    assert not broker.log


def test_a_store_that_is_away_fails_the_first_of_each_key_of_a_transaction_and_nothing_is_sent():
    broker = Broker(Stores())
    broker.stores.away = True
    batch = [row(1, key="a"), row(2, key="b"), row(3, key="a")]
    failures = publishing(broker).publish(batch, "checkpoint")
    assert [failure.record for failure in failures] == batch[:2]
    assert not broker.log


def test_a_store_that_is_away_for_however_long_parks_nothing():
    policy = RetryPolicy(Failures(park_after=1), random.random)
    attempts = Attempts(1, 0.0)
    for _ in range(10_000):
        attempts.add(Failure(row(1), "transform 'stores': the store is away", retryable=True))
    assert not policy.parks(attempts)


def test_what_is_looked_for_in_the_log_needs_no_store():
    broker = Broker(Stores())
    assert publishing(broker).publish([row(1)], "checkpoint") == []
    broker.stores.away, broker.stores.stored = True, []
    assert publishing(broker).find([row(1), row(2)], "").published == [1]
    assert not broker.stores.stored


class Slow(Stores):
    """Needs longer for one than a sender goes on."""

    def __init__(self, now: list[float]) -> None:
        super().__init__()
        self._now = now
        self.seconds = senders.STORING_SECONDS

    def store(self, record: Outgoing) -> None:
        self._now[0] += self.seconds
        super().store(record)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(senders, "monotonic", lambda: now[0])
    return now


def test_deliveries_are_reported_while_others_wait_for_a_slow_store(now: list[float]):
    broker = Broker(Slow(now))
    sender = sending(broker)
    sender.send([row(number) for number in range(1, 6)])
    for number in range(1, 6):
        assert broker.log[-1] == f"claim v{number}"
        assert [each.id for each in sender.poll(0).delivered] == [number]


def test_after_the_lease_nothing_is_sent_that_was_stored_meanwhile(now: list[float]):
    broker, leading = Broker(Slow(now)), [True]
    sender = sending(broker, leading)
    sender.send([row(1), row(2)])
    leading.append(False)
    found = reports(sender, 2)
    assert ([each.id for each in found.delivered], [each.record.id for each in found.failed]) == ([1], [2])
    assert found.failed[0].retryable
    assert broker.log == ["claim v1"]


def test_a_transaction_that_takes_long_to_be_stored_ends_and_what_is_stored_comes_first(now: list[float]):
    sender = publishing(broker := Broker(stores := Slow(now)))
    batch = [row(number) for number in range(1, 201)]
    [failed] = sender.publish(batch, "checkpoint")
    assert (failed.retryable, failed.suspect, failed.innocent) == (True, True, True)
    assert now[0] < senders.BATCH_SECONDS + 2 * stores.seconds
    before = batch[: batch.index(failed.record)]
    assert stores.stored == [each.value for each in before]
    assert sender.publish(before[:9], "checkpoint") == sender.publish(before[9:], "checkpoint") == []
    assert len(broker.log) == len(stores.stored) == len(before), "nothing is stored twice"
    assert sender.publish(before[:1], "checkpoint") == []
    assert len(stores.stored) == len(before) + 1, "but before each publication"


def test_a_row_that_has_changed_since_it_was_stored_is_stored_again(now: list[float]):
    sender = publishing(Broker(stores := Slow(now)))
    stores.seconds = senders.BATCH_SECONDS + 1
    [failed] = sender.publish([row(1), row(2), row(3)], "checkpoint")
    assert failed.record.id == 2, "one row is always done"
    assert sender.publish([row(1, "changed")], "checkpoint") == []
    assert stores.stored == ["v1", "changed"]
