"""librdkafka's clients, with settings that refer to files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaException
from outbox_sdk import DriverError

from outbox_kafka_client.client_log import ClientLog
from outbox_kafka_client.errors import describe
from outbox_kafka_client.files import present, stamps
from outbox_kafka_client.settings import config_error
from outbox_kafka_client.sign_in import keep_signed_in, sign_in_files

_CONNECT_SECONDS: Final = 1.5
"""Seconds in which a client with new files must reach a broker."""


class Producer(confluent_kafka.Producer):
    """A producer that reads its files when it is opened, and its password again whenever that changes."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Opens the producer.

        Args:
            settings: librdkafka's settings; a value may be a :class:`outbox_sdk.FileText`.

        Raises:
            DriverError: A file cannot be read (retryable).
            KafkaException: librdkafka refuses the settings.
        """
        seen = stamps(sign_in_files(settings))
        content = present(settings)
        super().__init__(content)
        keep_signed_in(self, settings, content, seen)


class Consumer(confluent_kafka.Consumer):
    """A consumer that does the same."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Opens the consumer, see :class:`Producer`."""
        seen = stamps(sign_in_files(settings))
        content = present(settings)
        super().__init__(content)
        keep_signed_in(self, settings, content, seen)


def try_files(settings: Mapping[str, Any]) -> None:
    """Makes sure that a broker can be reached with the present files of the settings; takes up to 1.5 s.

    Args:
        settings: The settings of a producer, transactional or not.

    Raises:
        OutboxError: A file cannot be used, or the brokers do not accept it or cannot be reached.
    """
    own = {name: value for name, value in settings.items() if name not in ("transactional.id", "logger")}
    try:
        producer = Producer({**own, "logger": ClientLog(), "error_cb": lambda _error: None})
    except KafkaException as error:
        raise config_error(error.args[0].str(), settings) from None  # the cause may quote a secret
    try:
        producer.list_topics(timeout=_CONNECT_SECONDS)
    except KafkaException as error:
        raise DriverError(describe(error.args[0], settings), retryable=True) from error
