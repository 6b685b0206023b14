"""The Kafka publisher: the senders that it opens."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from outbox_api import Finding

from outbox_kafka.client.settings import client_settings
from outbox_kafka.settings import (
    KafkaOptions,
    flush_seconds,
    producer_settings,
    transaction_timeout_ms,
    transactional_settings,
    validate,
)

if TYPE_CHECKING:
    from outbox_kafka.partitions import KafkaTopic
    from outbox_kafka.sender import KafkaSender
    from outbox_kafka.transactional_sender import KafkaTransactionalSender


_PREFIX = "outbox."
"""The prefix of transactional ids, which are also the keys of checkpoints."""


class KafkaPublisher:
    """Publishes to Kafka; see :class:`outbox_api.Publisher` for the contract."""

    def __init__(self, options: KafkaOptions) -> None:
        """Checks the options; does not connect.

        Raises:
            ConfigError: librdkafka does not know a setting or cannot parse its value; a setting would break
                the order of records; or the transaction timeout is shorter than the delivery timeout.
        """
        self._kafka, self._options = options.kafka, options
        validate(producer_settings(options.kafka))
        if options.kafka.get("transaction.timeout.ms") is not None:
            transactional_settings(options.kafka, _PREFIX)

    def open(self, lane: str) -> KafkaSender:
        """Opens a sender whose ``client.id`` is the lane's name, unless the settings have one.

        The broker may be down: the sender connects on its own, and reports records that it cannot deliver.
        """
        from outbox_kafka.sender import KafkaSender  # noqa: PLC0415 - the client is imported late

        return KafkaSender(
            lane, producer_settings(self._kafka, client_id=lane), flush_seconds=flush_seconds(self._kafka)
        )

    def open_transactional(self, lane: str) -> KafkaTransactionalSender:
        """Opens a transactional sender; see :meth:`outbox_api.Publisher.open_transactional`.

        The transactional id, and the key of the checkpoint, are "outbox." and the lane's name. Takes up to
        40 s before it gives up.

        Raises:
            ConfigError: The settings contradict transactions.
            DriverError: The broker cannot be reached or refuses; or the checkpoint topic would delete
                checkpoints (not retryable).
        """
        # The client is imported late.
        from outbox_kafka.checkpoint import CheckpointStore  # noqa: PLC0415
        from outbox_kafka.topics import ensure_checkpoint_topic, unwritable  # noqa: PLC0415
        from outbox_kafka.trace import Tracer  # noqa: PLC0415
        from outbox_kafka.transactional_sender import KafkaTransactionalSender  # noqa: PLC0415

        name = f"{_PREFIX}{lane}"
        settings, user = transactional_settings(self._kafka, name), client_settings(self._kafka)
        topic = ensure_checkpoint_topic(user, self._options.checkpoint_topic)
        store = CheckpointStore(user, topic, name, transaction_timeout_ms(settings) / 1000)
        return KafkaTransactionalSender(settings, store, Tracer(user), partial(unwritable, user))

    def prepare(self, topics: Sequence[str], partitions: int) -> Sequence[str]:
        """Creates missing topics with the broker's default replication; see the contract."""
        from outbox_kafka.topics import create_missing  # noqa: PLC0415 - the client is imported late

        return create_missing(client_settings(self._kafka), topics, partitions)

    def topic(self, name: str) -> KafkaTopic:
        """Returns a topic's partitions, to which some can be added; see the contract."""
        from outbox_kafka.partitions import KafkaTopic  # noqa: PLC0415 - the client is imported late

        return KafkaTopic(client_settings(self._kafka), name)

    def check(self, *, transactional: bool) -> Sequence[Finding]:
        """Checks the settings, the broker and its permissions; see the contract."""
        from outbox_kafka.check import findings  # noqa: PLC0415 - the client is imported late

        producer, user = producer_settings(self._kafka), client_settings(self._kafka)
        return findings(producer, user, self._options, transactional=transactional)
