"""The publisher's options, and a producer's settings: forced values, defaults, refused contradictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from outbox_api import ConfigError, FileText
from outbox_api.seams.hooks import GIVEN

from outbox_kafka.client.files import present
from outbox_kafka.client.settings import as_text, client_settings, config_error


@dataclass(frozen=True)
class KafkaOptions:
    """How to reach Kafka, and how to produce to it.

    Attributes:
        kafka: librdkafka settings by their own names (``bootstrap.servers``, ``linger.ms``, …). Values may
            be text, numbers, booleans, or lists (joined by commas); a setting without a value keeps its
            default. Consumer settings are ignored, so that the mapping can be shared with an elector.
        checkpoint_topic: The compacted topic in which exactly-once delivery stores its checkpoints. It is
            created if it is missing, and must not be deleted: the checkpoints would be deleted with it.
        topics: The topics that records may name, with ``*`` and ``?`` as wildcards; core gives them.
        dead_letter_topics: The topics for copies of dead letters; core gives them.
    """

    kafka: Mapping[str, Any] = field(
        default_factory=lambda: {"bootstrap.servers": "localhost:9092"}, repr=False
    )
    checkpoint_topic: str = "outbox.checkpoints"
    topics: Sequence[str] = field(default=("*",), metadata=GIVEN)
    dead_letter_topics: Sequence[str] = field(default=(), metadata=GIVEN)

    @property
    def max_message_bytes(self) -> int:
        """The size of the largest message that the client sends, before compression."""
        return largest_message(client_settings(self.kafka))


_DEFAULTS: Mapping[str, object] = {
    "client.id": "outbox",
    "compression.type": "lz4",
    # Shorter than the election's session (10 s): a message of a former leader must not arrive after its
    # successor has started.
    "delivery.timeout.ms": 8000,
    # So that a batch or a wave leaves in few requests: without lingering, the client sends its first records
    # while the rest is handed over. No record waits that long, because senders flush behind the last one.
    "linger.ms": 20,
    # librdkafka's own default sends empty keys to random partitions, which would break their order.
    "partitioner": "consistent",
    # The lane limits the records in flight, so the client needs no limit of its own (0 = no limit).
    "queue.buffering.max.messages": 0,
    # A topic that does not exist after this long is reported as missing, well before the delivery timeout.
    "topic.metadata.propagation.max.ms": 5000,
    # librdkafka's own default waits up to 10 s before it reconnects. While a broker restarts nothing is
    # delivered, so the wait adds to the outage.
    "reconnect.backoff.max.ms": 250,
    # A broker closes idle connections; this needs no log line.
    "log.connection.close": False,
}
_ALIASES: Mapping[str, str] = {
    "acks": "request.required.acks",
    "compression.type": "compression.codec",
    "delivery.timeout.ms": "message.timeout.ms",
    "linger.ms": "queue.buffering.max.ms",
}
_OVERHEAD_MS = 7000
"""Milliseconds of a transaction beside its deliveries: for its begin and its commit."""

_RETRY_BACKOFF_MS = 1
"""Milliseconds before the first retry; doubles with each further one. A broker refuses a transaction while it
completes the one before, usually for a few milliseconds.
"""


def producer_settings(kafka: Mapping[str, Any], client_id: str | None = None) -> dict[str, Any]:
    """Returns the settings of a producer: the user's, our defaults, and idempotence."""
    settings = client_settings(kafka)
    for name, value in _DEFAULTS.items():
        if name not in settings and _ALIASES.get(name) not in settings:
            settings[name] = as_text(value)
    if client_id and "client.id" not in kafka:
        settings["client.id"] = client_id
    _refuse_contradictions(settings)
    if settings["partitioner"] == "consistent_random":
        # Both place every key the same, except that consistent_random scatters the empty key.
        settings["partitioner"] = "consistent"
    return settings | {"enable.idempotence": "true", "acks": "all"}


def flush_seconds(kafka: Mapping[str, Any]) -> float:
    """Returns for how many seconds a sender has to flush what it has produced, to end the lingering.

    It is 0 if the user's settings say how long the client lingers: then it does.
    """
    settings = client_settings(kafka)
    chosen = "linger.ms" in settings or _ALIASES["linger.ms"] in settings
    return 0.0 if chosen else int(str(_DEFAULTS["linger.ms"])) / 1000


def largest_message(settings: Mapping[str, Any]) -> int:
    """Returns the size of the largest message that a client with these settings sends, before compression."""
    return int(settings.get("message.max.bytes", 1_000_000))


def transactional_settings(kafka: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Returns the settings of a transactional producer.

    ``transaction.timeout.ms`` is the delivery timeout plus a few seconds. If a harvester dies and no other
    replaces it, readers of committed messages wait that long.
    """
    settings = producer_settings(kafka, client_id=name)
    if (conflict := timeout_conflict(settings)) is not None:
        raise ConfigError(f"Kafka setting {conflict[0]}; {conflict[1]}")
    timeout_ms = transaction_timeout_ms(settings)
    # By default, a client that has lost all connections discards its brokers, and with them requests of the
    # transaction: it would wait until the transaction times out. A sender that fails is reopened anyway.
    defaults = {"retry.backoff.ms": str(_RETRY_BACKOFF_MS), "metadata.recovery.strategy": "none"} | settings
    return defaults | {"transactional.id": name, "transaction.timeout.ms": str(timeout_ms)}


def timeout_conflict(producer: Mapping[str, Any]) -> tuple[str, str] | None:
    """Returns how a transaction can time out before its deliveries do, and the cure; ``None`` if never."""
    delivery = _delivery_timeout_name(producer)
    deliver_ms, timeout_ms = int(producer[delivery]), transaction_timeout_ms(producer)
    if 0 < deliver_ms < timeout_ms:
        return None
    what = (
        f"'transaction.timeout.ms' ({timeout_ms}) must be greater than '{delivery}' ({deliver_ms}, where 0 "
        "means no limit): a transaction must outlast its deliveries"
    )
    return what, "leave out the former, and keep the latter short"


def transaction_timeout_ms(producer: Mapping[str, Any]) -> int:
    """Returns how many milliseconds a transaction may take, given the complete settings of a producer."""
    delivery_ms = int(producer[_delivery_timeout_name(producer)])
    return int(producer.get("transaction.timeout.ms", delivery_ms + _OVERHEAD_MS))


def _delivery_timeout_name(settings: Mapping[str, Any]) -> str:
    return "delivery.timeout.ms" if "delivery.timeout.ms" in settings else "message.timeout.ms"


def validate(settings: Mapping[str, Any]) -> None:
    """Checks that librdkafka knows every property and can parse its value; opens no connection."""
    from confluent_kafka import KafkaException, Producer  # noqa: PLC0415 - the client is imported late

    # The client parses the properties in order and stops at the first invalid one. An invalid last property
    # keeps it from creating a producer and its threads.
    # What is in files may change, and is looked at when a client is opened.
    probe = "outbox.probe"
    written = present({name: value for name, value in settings.items() if not isinstance(value, FileText)})
    try:
        Producer({**written, probe: ""})
    except KafkaException as error:
        message = error.args[0].str()
        if f'"{probe}"' not in message:
            raise config_error(message, settings) from None  # the cause may quote a secret
    except (TypeError, ValueError) as error:
        raise config_error(str(error), settings) from None  # the cause may quote a secret


def _refuse_contradictions(settings: Mapping[str, Any]) -> None:
    if _lower(settings.get("enable.idempotence", "true")) not in ("true", "t", "1"):
        raise ConfigError(
            "Kafka setting 'enable.idempotence' must not be false: "
            "without it a retry inside the client can reorder or repeat records; remove the setting"
        )
    for name in ("acks", "request.required.acks"):
        if _lower(settings.get(name, "all")) not in ("all", "-1"):
            raise ConfigError(
                f"Kafka setting '{name}' must be 'all': a record is deleted from the outbox once it is "
                "acknowledged, so fewer acknowledgements can lose it; remove the setting"
            )
    if settings["partitioner"] == "random":
        raise ConfigError(
            "Kafka setting 'partitioner' must not be 'random': it scatters the records of a key over "
            "partitions, where they have no order; use 'consistent' or, like Java clients, 'murmur2_random'"
        )
    if _lower(settings.get("delivery.report.only.error", "false")) not in ("false", "f", "0"):
        raise ConfigError(
            "Kafka setting 'delivery.report.only.error' must not be true: records are deleted from the "
            "outbox once their delivery is reported, which it turns off; remove the setting"
        )
    if _lower(settings.get("enable.gapless.guarantee", "false")) not in ("false", "f", "0"):
        raise ConfigError(
            "Kafka setting 'enable.gapless.guarantee' must not be true: one record that a broker refuses "
            "would end the client for all others; runs of a key have a client with it; remove the setting"
        )
    if "transactional.id" in settings:
        raise ConfigError(
            "Kafka setting 'transactional.id' must not be set: every lane has a producer of its own, and "
            "producers that share the id fence one another; remove the setting"
        )


def _lower(value: object) -> str:
    return str(value).strip().lower()
