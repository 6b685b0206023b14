"""Senders whose deliveries have spans: they stand before a lane's sender where the process is traced."""

from __future__ import annotations

from collections.abc import Sequence
from time import time_ns
from typing import cast

from outbox_api import (
    Attempt,
    Deliveries,
    Failure,
    Found,
    MarkedRecord,
    RunSender,
    Sender,
    TransactionalSender,
)

from outbox_core.tracing.spans import ABORTED, UNKNOWN, DeliverySpans


class TracedSender:
    """A :class:`outbox_api.Sender` with a span for what is sent together, until its last acknowledgement."""

    def __init__(self, sender: Sender, spans: DeliverySpans) -> None:
        self._sender = sender
        self._spans = spans

    def send(self, records: Sequence[MarkedRecord]) -> None:
        """Sends, and begins the spans."""
        since = time_ns()
        self._sender.send(records)
        self._spans.sent(records, since)

    def send_runs(self, first: Sequence[MarkedRecord], others: Sequence[MarkedRecord]) -> None:
        """Sends runs, if the sender does, and begins the spans."""
        since = time_ns()
        cast("RunSender", self._sender).send_runs(first, others)
        self._spans.sent([*first, *others], since)

    def poll(self, timeout: float) -> Deliveries:
        """Polls, and ends spans."""
        deliveries = self._sender.poll(timeout)
        self._spans.settled(deliveries)
        return deliveries

    def close(self, timeout: float) -> Deliveries:
        """Closes, and ends all spans; records that were dropped have an unknown outcome."""
        try:
            deliveries = self._sender.close(timeout)
            self._spans.settled(deliveries)
        finally:
            self._spans.end(UNKNOWN)
        return deliveries


class TracedTransactionalSender:
    """A :class:`outbox_api.TransactionalSender` with a span for each transaction.

    A transaction with many traces has several spans.
    """

    def __init__(self, sender: TransactionalSender, spans: DeliverySpans) -> None:
        self._sender = sender
        self._spans = spans

    @property
    def location(self) -> str:
        """Where the checkpoint is kept."""
        return self._sender.location

    def attempt(self, location: str = "") -> Attempt | None:
        """Reads the last attempt."""
        return self._sender.attempt(location)

    def find(self, records: Sequence[MarkedRecord], trace: str) -> Found:
        """Looks for records in the log."""
        return self._sender.find(records, trace)

    def publish(self, records: Sequence[MarkedRecord], checkpoint: str) -> list[Failure]:
        """Publishes, and tells of it in spans."""
        since, error = time_ns(), UNKNOWN
        try:
            failures = self._sender.publish(records, checkpoint)
            error = ABORTED if failures else ""
        finally:
            self._spans.sent(records, since)
            self._spans.end(error)
        return failures

    def close(self) -> None:
        """Closes the sender."""
        self._sender.close()
