"""Produces records one to a request, after a broker refused the batch that contained them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from confluent_kafka import KafkaError
from outbox_kafka_client.client_log import ClientLog
from outbox_kafka_client.clients import Producer
from outbox_sdk import MarkedRecord

from outbox_kafka.produce import OnDelivery


class UnbatchedProducer:
    """A second producer, which sends batches of one record.

    A broker compares the size of whole batches with its limit, and refuses every record of a batch that is
    too large. Only a record that is refused by itself is at fault.
    """

    def __init__(
        self, settings: Mapping[str, Any], on_delivery: OnDelivery, on_error: Callable[[KafkaError], None]
    ) -> None:
        """Creates the producer; it connects on its own.

        Args:
            settings: The first producer's settings.
            on_delivery: Receives each record and its delivery report, during ``poll``.
            on_error: Receives the client's own errors, during ``poll``.
        """
        self._on_delivery = on_delivery
        rest = {name: value for name, value in settings.items() if name != "queue.buffering.max.ms"}
        own = {
            "batch.num.messages": "1",
            "linger.ms": "0",
            "client.id": f"{settings['client.id']}.unbatched",
        }
        self._producer = Producer({**rest, **own, "logger": ClientLog(), "error_cb": on_error})

    def __len__(self) -> int:
        """Returns how many records have no delivery report yet."""
        return len(self._producer)

    def produce(self, record: MarkedRecord) -> None:
        """Enqueues a record that the first producer accepted before.

        Raises:
            BufferError: The client's queue is full.
            KafkaException: The client refuses the record.
        """
        self._producer.produce(
            record.topic,
            record.value,
            record.key,
            partition=-1 if record.partition is None else record.partition,
            on_delivery=partial(self._on_delivery, record),
            timestamp=record.timestamp_ms or 0,
            headers=list(record.headers) or None,
        )

    def poll(self, timeout: float) -> None:
        """Runs the callbacks for delivery reports and errors.

        Args:
            timeout: Seconds to wait for the first.
        """
        self._producer.poll(timeout)

    def close(self) -> None:
        """Drops what is not delivered, without a report, and disconnects."""
        self._producer.purge()
        self._producer.close()
