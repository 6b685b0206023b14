"""Sends records one to a request, after a broker refused the batch that they were in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, Producer
from outbox_sdk import MarkedRecord

from outbox_kafka.client_log import ClientLog
from outbox_kafka.handover import Report


class AloneProducer:
    """A second producer, which makes batches of one.

    A broker measures whole batches against its limit and refuses every record of one that is too large. Only
    a record that is refused by itself is at fault.
    """

    def __init__(
        self, settings: Mapping[str, Any], report: Report, heed: Callable[[KafkaError], None]
    ) -> None:
        """Makes the producer.

        Args:
            settings: The first producer's settings.
            report: Takes what became of each record, during ``poll``.
            heed: Takes the client's own errors, during ``poll``.
        """
        self._report = report
        rest = {name: value for name, value in settings.items() if name != "queue.buffering.max.ms"}
        alone = {"batch.num.messages": "1", "linger.ms": "0", "client.id": f"{settings['client.id']}.alone"}
        self._producer = Producer({**rest, **alone, "logger": ClientLog(), "error_cb": heed})

    def __len__(self) -> int:
        """Returns how many records have no report yet."""
        return len(self._producer)

    def send(self, record: MarkedRecord) -> None:
        """Hands over a record that the first producer has taken before; raises what the client raises."""
        self._producer.produce(
            record.topic,
            record.value,
            record.key,
            partition=-1 if record.partition is None else record.partition,
            on_delivery=partial(self._report, record),
            timestamp=record.timestamp_ms or 0,
            headers=list(record.headers) or None,
        )

    def poll(self, timeout: float) -> None:
        """Serves reports and errors for up to ``timeout`` seconds, less when there are any."""
        self._producer.poll(timeout)

    def close(self) -> None:
        """Drops what is left, unreported, and disconnects."""
        self._producer.purge()
        self._producer.close()
