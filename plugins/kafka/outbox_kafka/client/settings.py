"""Converts the user's settings for librdkafka, and removes their secrets from messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from outbox_api import ConfigError, DriverError, FileText, present_text

_SECRET = re.compile(r"password|passphrase|secret|token|\.pem$|jaas|oauthbearer\.config")
_FILE = re.compile(r"(ssl\.[a-z.]+) failed")
_KEEPS_FILES = ("sasl.", "ssl.")
_UNKNOWN = re.compile(r'No such configuration property: "([^"]*)"')
_REDACTED = "[redacted]"


def client_settings(kafka: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the user's settings in the form that our clients take; those without a value are left out.

    A value that refers to files stays as it is among the settings of SASL and TLS; others are read now.
    """
    return {str(name): _setting(str(name), value) for name, value in kafka.items() if value is not None}


def _setting(name: str, value: object) -> object:
    if isinstance(value, FileText) and not name.startswith(_KEEPS_FILES):
        return value.read()
    return as_text(value)


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
        if value and isinstance(value, str | FileText) and _SECRET.search(name):
            message = message.replace(_content(value) or _REDACTED, _REDACTED)
    return message


def config_error(message: str, settings: Mapping[str, Any]) -> ConfigError | DriverError:
    """Converts librdkafka's complaint about settings to a readable error without their secrets.

    For a file of TLS that cannot be used it is a ``DriverError`` that a retry may cure, as somebody may just
    replace the file; so it is for a token that could not be made.
    """
    file = _FILE.search(message)
    if file is not None and (file[1].endswith(".location") or isinstance(settings.get(file[1]), FileText)):
        what = redact(message, settings)
        cure = "check that the file is there, and that certificate and key belong together"
        return DriverError(f"what '{file[1]}' names cannot be used: {what}; {cure}", retryable=True)
    if "OAuth token not set" in message:
        return DriverError("the function that 'oauth_cb' names has made no valid token yet", retryable=True)
    unknown = _UNKNOWN.search(message)
    if unknown is None:
        return ConfigError(f"Kafka setting refused: {redact(message, settings)}")
    return ConfigError(
        f"unknown Kafka setting '{unknown[1]}'; see librdkafka's CONFIGURATION.md for the names"
    )


def _content(value: str | FileText) -> str:
    try:
        return present_text(value)
    except ConfigError:
        return ""
