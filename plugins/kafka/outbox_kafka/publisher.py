"""The Kafka publisher: holds options, and makes senders of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from outbox_sdk import Finding

from outbox_kafka.options import KafkaOptions
from outbox_kafka.settings import client_settings, producer_settings, transactional_settings, validate

if TYPE_CHECKING:
    from outbox_kafka.sender import KafkaSender
    from outbox_kafka.transactional import KafkaTransactionalSender

_PREFIX = "outbox."
"""What the names of transactional ids and of the markers' groups begin with, as nobody else's do."""


class KafkaPublisher:
    """Publishes to Kafka; see :class:`outbox_sdk.Publisher` for the contract."""

    def __init__(self, options: KafkaOptions) -> None:
        """Takes the options and connects to nothing.

        Args:
            options: The user's settings.

        Raises:
            ConfigError: librdkafka does not know a setting or cannot read its value, or a setting
                contradicts what the order of records rests on, or the time that a transaction is given is
                too short for its deliveries.
        """
        self._kafka = options.kafka
        self._marker_topic = options.marker_topic
        validate(producer_settings(options.kafka))
        if options.kafka.get("transaction.timeout.ms") is not None:
            transactional_settings(options.kafka, _PREFIX)

    def open(self, lane: str) -> KafkaSender:
        """Makes a sender whose ``client.id`` is the lane's name, unless the settings have one.

        The broker may be down: the sender connects on its own, and reports what it cannot deliver.
        """
        from outbox_kafka.sender import KafkaSender  # noqa: PLC0415 - the client is imported late

        return KafkaSender(lane, producer_settings(self._kafka, client_id=lane))

    def open_transactional(self, lane: str) -> KafkaTransactionalSender:
        """Makes a transactional sender; see :meth:`outbox_sdk.Publisher.open_transactional`.

        Its transactional id, and the group whose offset carries the marker, are both named "outbox." and the
        lane's name. Takes up to 40 s before it gives up.

        Raises:
            ConfigError: The settings contradict transactions.
        """
        # The client is imported late.
        from outbox_kafka.marker import MarkerPlace  # noqa: PLC0415
        from outbox_kafka.topics import ensure_marker_topic, unwritable  # noqa: PLC0415
        from outbox_kafka.transactional import KafkaTransactionalSender  # noqa: PLC0415

        name = f"{_PREFIX}{lane}"
        settings, own = transactional_settings(self._kafka, name), client_settings(self._kafka)
        cluster = ensure_marker_topic(own, self._marker_topic)
        place = MarkerPlace(own, cluster, self._marker_topic, name)
        return KafkaTransactionalSender(settings, place, partial(unwritable, own))

    def prepare(self, topics: Sequence[str], partitions: int) -> Sequence[str]:
        """Creates missing topics with the broker's default replication; see the contract."""
        from outbox_kafka.topics import create_missing  # noqa: PLC0415 - the client is imported late

        return create_missing(client_settings(self._kafka), topics, partitions)

    def check(self, *, transactional: bool) -> Sequence[Finding]:
        """Looks at the settings, the broker and what it permits; see the contract."""
        from outbox_kafka.findings import look  # noqa: PLC0415 - the client is imported late

        return look(producer_settings(self._kafka), client_settings(self._kafka), transactional=transactional)
