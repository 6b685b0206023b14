"""What `outbox check` says of the broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaException
from outbox_sdk import Finding, Level

from outbox_kafka.settings import redact
from outbox_kafka.topics import admin_client
from outbox_kafka.verdict import reason

_REACH = 5.0
"""Seconds to wait for the broker."""


def look(shared: Mapping[str, Any]) -> Sequence[Finding]:
    """Looks at the broker with the user's settings."""
    try:
        cluster = admin_client(shared).list_topics(timeout=_REACH)
    except KafkaException as error:
        message = f"cannot be reached: {redact(reason(error.args[0]), shared)}"
        return [Finding(Level.ERROR, "Kafka broker", message, "check bootstrap.servers, and that Kafka runs")]
    return [Finding(Level.OK, "Kafka broker", f"reached; {len(cluster.brokers)} brokers")]
