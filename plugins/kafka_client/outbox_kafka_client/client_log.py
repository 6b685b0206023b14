"""Forwards librdkafka's log lines and error events to Python's logging, at sensible levels."""

from __future__ import annotations

import logging
import time

LOGGER = logging.getLogger("outbox.kafka")

_REPEAT_SECONDS = 30.0
"""Seconds during which an identical line is not logged as a warning again."""


class ClientLog:
    """Receives a client's log lines as its ``logger``; the client calls ``log`` from ``poll`` only."""

    def __init__(self) -> None:
        self._logged_at: dict[str, float] = {}

    def log(self, level: int, template: str, facility: str, client: str, line: str) -> None:
        """Logs one line of librdkafka.

        Args:
            level: A level of Python's logging.
            template: Combines the three parts to a line.
            facility: librdkafka's short name for the kind of event.
            client: The client's name.
            line: The text; librdkafka keeps secrets out of it.
        """
        if facility == "CONFWARN":
            # Producers and consumers share the settings: each ignores those of the other, as intended.
            level = logging.DEBUG
        elif facility == "GETPID":
            # The client asks a broker that has only just started again; if it never answers, deliveries fail.
            level = min(level, logging.INFO)
        elif facility in ("ADDOFFSETS", "ADDPARTS", "FATAL", "METADATAUPDATE", "TXNERR"):
            # Errors of a transaction, or of the producer as a whole, are raised or returned.
            level = logging.DEBUG
        elif facility in ("FAIL", "ERROR"):
            # The client reconnects. The consequences show in delivery reports or in the election's state.
            level = logging.DEBUG if self._is_repeated(line) else min(level, logging.WARNING)
        LOGGER.log(level, template, facility, client, line)

    def warn_once(self, line: str) -> None:
        """Logs ``line`` as a warning; at debug level if it was logged within the last 30 s."""
        LOGGER.log(logging.DEBUG if self._is_repeated(line) else logging.WARNING, "%s", line)

    def debug(self, line: str) -> None:
        """Logs ``line`` at debug level."""
        LOGGER.debug("%s", line)

    def _is_repeated(self, line: str) -> bool:
        """Returns whether ``line`` was logged a short while ago; if not, remembers it from now."""
        now = time.monotonic()
        if now - self._logged_at.get(line, -_REPEAT_SECONDS) < _REPEAT_SECONDS:
            return True
        self._logged_at = {line: at for line, at in self._logged_at.items() if now - at < _REPEAT_SECONDS}
        self._logged_at[line] = now
        return False
