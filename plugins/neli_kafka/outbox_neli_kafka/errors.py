"""Classifies Kafka's errors for the election."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError
from outbox_kafka_client import errors
from outbox_kafka_client.errors import describe
from outbox_sdk import AccessDenied, DriverError


def is_refusal(error: KafkaError) -> bool:
    """Returns whether the broker refuses this process, its group or its topic: a retry alone is no use."""
    return errors.is_refusal(error) or error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def driver_error(what: str, error: KafkaError, settings: Mapping[str, Any]) -> DriverError:
    """Creates an error that says what failed and why, without the secrets in ``settings``."""
    message = f"{what}: {describe(error, settings)}"
    return AccessDenied(message) if is_refusal(error) else DriverError(message, retryable=True)
