"""Converts the user's settings for librdkafka, and removes their secrets from messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from outbox_sdk import ConfigError

from outbox_kafka_client.properties import nearest

_SECRET = re.compile(r"password|secret|token|\.pem$|jaas|oauthbearer\.config")
_UNKNOWN = re.compile(r'No such configuration property: "([^"]*)"')
_REDACTED = "[redacted]"


def client_settings(kafka: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the user's settings in the form that the client takes; those without a value are left out."""
    return {str(name): as_text(value) for name, value in kafka.items() if value is not None}


def as_text(value: object) -> object:
    """Converts a boolean, number or list to librdkafka's notation; returns any other value unchanged."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list | tuple):
        return ",".join(str(as_text(item)) for item in value)
    return value


def bootstrap_servers(settings: Mapping[str, Any]) -> str:
    """Returns the addresses that the settings name, for messages."""
    return str(settings.get("bootstrap.servers") or settings.get("metadata.broker.list") or "(nowhere)")


def redact(message: str, settings: Mapping[str, Any]) -> str:
    """Returns ``message`` without the values of secret settings."""
    for name, value in settings.items():
        if value and isinstance(value, str) and _SECRET.search(name):
            message = message.replace(value, _REDACTED)
    return message


def config_error(message: str, settings: Mapping[str, Any]) -> ConfigError:
    """Converts librdkafka's complaint about settings to a readable error without their secrets.

    For an unknown property the error names the most similar one that librdkafka knows.
    """
    unknown = _UNKNOWN.search(message)
    if unknown is None:
        return ConfigError(f"Kafka setting refused: {redact(message, settings)}")
    guess = nearest(unknown[1])
    hint = f"; did you mean '{guess}'?" if guess else "; see librdkafka's CONFIGURATION.md for the names"
    return ConfigError(f"unknown Kafka setting '{unknown[1]}'{hint}")
