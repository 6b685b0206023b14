"""A lane's next producer, which reads certificates anew after their files have changed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from confluent_kafka import KafkaException
from outbox_api import OutboxError
from outbox_kafka_client.clients import LOGGER
from outbox_kafka_client.errors import describe

from outbox_kafka.producer_pool import LaneProducer
from outbox_kafka.topic_lookup import BackgroundCalls

_CONNECT_SECONDS = 1.5
"""Seconds in which the producer must reach a broker."""


class NextProducer:
    """Opens the next producer in the background; used by one thread.

    It is offered only if it has reached a broker, so certificates that the brokers do not accept change
    nothing: the lane goes on with its open connections.
    """

    def __init__(self, lane: str, settings: Mapping[str, Any], background: BackgroundCalls) -> None:
        """Opens nothing yet.

        Args:
            lane: The lane's name.
            settings: librdkafka's settings, complete.
            background: Runs what waits for the broker.
        """
        self._lane = lane
        self._settings = settings
        self._background = background
        self._opened: LaneProducer | None = None

    def __bool__(self) -> bool:
        """Returns whether the producer is open, and has reached a broker."""
        return self._opened is not None

    def prepare(self, former: LaneProducer) -> None:
        """Begins to open the producer if the files have changed since the former one was opened.

        While requests without a report may be in the network, only the former producer keeps them from
        arriving behind later records. It stays until they are gone, or until it cannot connect any more.
        """
        if self._background or not former.renewal.is_due():
            return
        if former.must_stay:
            former.renewal.postpone()
        else:
            self._background.submit(self._open, partial(self._on_opened, former))

    def replace(self, former: LaneProducer) -> LaneProducer:
        """Returns the producer, and closes the former one, whose queues are empty."""
        new, self._opened = self._opened, None
        if new is None:
            return former
        new.on_error = former.on_error
        former.producer.close()
        LOGGER.info("%s: certificates have changed; a new producer uses them", self._settings["client.id"])
        return new

    def close(self) -> None:
        """Closes the producer if nobody has taken it. Idempotent."""
        if self._opened is not None:
            self._opened.producer.close()
            self._opened = None

    def _open(self) -> LaneProducer | str:
        """Returns the producer, or why its certificates cannot be used."""
        try:
            new = LaneProducer(self._lane, self._settings)
            new.producer.list_topics(timeout=_CONNECT_SECONDS)
        except OutboxError as error:
            return str(error)
        except KafkaException as error:
            new.producer.close()
            return describe(error.args[0], self._settings)
        return new

    def _on_opened(self, former: LaneProducer, result: LaneProducer | str) -> None:
        if isinstance(result, LaneProducer):
            self._opened = result
        else:
            former.renewal.postpone()
            former.log.warn_once(
                f"{self._settings['client.id']}: changed certificates are not used yet: {result}"
            )
