"""What becomes of a task's messages, and how an error names the one that is at fault."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message
from outbox_api import DriverError, MarkedRecord
from outbox_kafka.errors import (
    delivery_error,
    driver_error,
    is_permanent,
    is_secondary,
    reason,
    rejects_whole_batch,
)

_SHOWN: Final = 100


class Outcomes:
    """The errors of one transaction's messages; true if there is any. Keeps the one that says most."""

    def __init__(self, time_ms: int = 0) -> None:
        self.time_ms = time_ms
        self.delivery_failed = False
        self._worst: tuple[tuple[bool, bool, int], MarkedRecord, KafkaError | Exception] | None = None

    def __bool__(self) -> bool:
        """Returns whether any message has an error."""
        return self._worst is not None

    def on_delivery(self, record: MarkedRecord, error: KafkaError | None, message: Message) -> None:
        """Receives a delivery report."""
        if (error := delivery_error(error, message)) is not None:
            self.delivery_failed = True
            self._add(record, error)

    def on_refused(self, record: MarkedRecord, error: Exception) -> None:
        """Receives a message that the client did not accept."""
        self._add(record, error.args[0] if isinstance(error, KafkaException) else error)

    def error(self, what: str, settings: Mapping[str, Any]) -> DriverError:
        """Returns the error that names the message."""
        assert self._worst is not None  # noqa: S101 - who asks has looked
        _, record, error = self._worst
        if isinstance(error, KafkaError) and is_secondary(error):
            return driver_error(what, error, settings)
        is_kafkas = isinstance(error, KafkaError)
        why = reason(error, settings) if isinstance(error, KafkaError) else str(error)
        key: Any = record.key
        key = "null" if key is None else repr(_text(key))
        named = f"a message to topic '{record.topic}' with key {key} and {_size(record)} bytes is refused"
        return DriverError(f"{what}: {named}: {why}", retryable=is_kafkas and not is_permanent(error))

    def _add(self, record: MarkedRecord, error: KafkaError | Exception) -> None:
        # Of a batch that is refused as a whole, the largest is the likeliest.
        rank = (not is_secondary(error), not rejects_whole_batch(error), _size(record))
        if self._worst is None or rank > self._worst[0]:
            self._worst = rank, record, error


def _size(record: MarkedRecord) -> int:
    headers = (part for header in record.headers for part in header)
    return sum(len(part) for part in (record.key, record.value, *headers) if part is not None)


def _text(key: str | bytes) -> str:
    text = key.decode(errors="replace") if isinstance(key, bytes) else key
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
