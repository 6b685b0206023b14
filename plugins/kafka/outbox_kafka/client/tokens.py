"""The function that makes OAuth tokens for clients, which the settings name."""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Callable
from typing import Any, Final

from outbox_api import ConfigError

TOKENS: Final = "oauth_cb"
"""The setting, which is confluent-kafka's and not librdkafka's: ``package.module:function``."""

_log = logging.getLogger("outbox.kafka")


def token_function(name: str) -> Callable[[str], Any]:
    """Returns the function of this name; it also logs the type of an error, which the client would hide."""
    what = f"Kafka setting '{TOKENS}' must name a function as package.module:function"
    try:
        function = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{what}, not '{name}': {error}") from error
    if not callable(function):
        raise ConfigError(f"{what}; '{name}' is none")

    def make(config: str) -> Any:
        try:
            return function(config)
        except Exception as error:
            _log.warning("%s '%s' makes no token: %s", TOKENS, name, type(error).__name__)  # no text: secrets
            raise

    return make
