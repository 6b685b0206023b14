"""Reaches the broker as an administrator, and creates the topic of the election."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AdminClient,
    ClusterMetadata,
    NewTopic,
)

from outbox_neli_kafka.client_log import ClientLog
from outbox_neli_kafka.settings import config_error, driver_error, is_refusal, where

REACH = 10.0
"""Seconds to wait for the broker."""

_SLICE = 0.5
"""Seconds of one attempt: between two, what went wrong with the connection can be seen."""

_BROKER_DEFAULT = -1

_KEPT_MS = 3_600_000
"""Heartbeats are of no use once they are read."""


class Administration:
    """An admin client that knows why it cannot reach the broker."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Makes the client; it logs to ``outbox.kafka``.

        Args:
            settings: The user's settings.

        Raises:
            ConfigError: librdkafka refuses the settings.
        """
        self._settings = settings
        self._troubles: list[KafkaError] = []
        try:
            # To librdkafka an admin client is a producer, and is held to these promises like any other.
            promises = ("enable.gapless.guarantee", "enable.idempotence", "transactional.id")
            plain = {name: value for name, value in settings.items() if name not in promises}
            self.client = AdminClient(plain, error_cb=self._troubles.append, logger=ClientLog())
        except KafkaException as error:
            raise config_error(error.args[0].str(), settings) from None  # the cause may quote a secret

    def reach(self, timeout: float) -> ClusterMetadata:
        """Returns what the cluster consists of.

        Args:
            timeout: Seconds to try; a refusal ends it sooner.

        Raises:
            DriverError: The broker cannot be reached, or it refuses this client.
        """
        deadline = time.monotonic() + timeout
        while True:
            try:
                return self.client.list_topics(timeout=_SLICE)
            except KafkaException as error:
                self.client.poll(0)
                refusals = [trouble for trouble in self._troubles if is_refusal(trouble)]
                if refusals or time.monotonic() > deadline:
                    what = f"cannot reach Kafka at {where(self._settings)} for the election"
                    trouble = (refusals or self._troubles or [error.args[0]])[0]
                    raise driver_error(what, trouble, self._settings) from error

    def create_topic(self, topic: str) -> bool:
        """Creates a topic of one partition, replicated as the broker does by default.

        Returns:
            Whether it was missing.

        Raises:
            DriverError: The broker refuses or does not answer in time.
        """
        wanted = NewTopic(topic, 1, _BROKER_DEFAULT, config={"retention.ms": str(_KEPT_MS)})
        try:
            self.client.create_topics([wanted], operation_timeout=REACH)[topic].result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise driver_error(
                f"cannot create leader topic '{topic}', which is missing or hidden (grant CREATE on it, or "
                "create it with one partition and grant READ, WRITE and DESCRIBE)",
                error.args[0],
                self._settings,
            ) from error
        return True


def ensure_topic(settings: Mapping[str, Any], topic: str) -> Administration:
    """Makes sure that the broker can be reached and that ``topic`` exists.

    Returns:
        The client that has reached it.

    Raises:
        ConfigError: librdkafka refuses the settings.
        DriverError: The broker cannot be reached or refuses.
    """
    administration = Administration(settings)
    if topic not in administration.reach(REACH).topics:
        administration.create_topic(topic)
    return administration
