"""Carries librdkafka's log lines and error events into Python's logging, at sensible levels."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError

from outbox_kafka.settings import redact
from outbox_kafka.verdict import is_grave, reason

LOGGER = logging.getLogger("outbox.kafka")


_QUIET = 30.0
"""Seconds for which a failure that repeats itself word for word is not told again."""


class ClientLog:
    """What the client takes as its ``logger``: it calls ``log`` from ``poll``, never on its own threads."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}

    def log(self, level: int, template: str, facility: str, client: str, line: str) -> None:
        """Logs one line of librdkafka's.

        Args:
            level: A level of Python's logging.
            template: How the three parts make a line.
            facility: librdkafka's short name for the kind of event.
            client: The client's name.
            line: The text; librdkafka keeps secrets out of it.
        """
        if facility == "CONFWARN":
            # Settings are shared by producers and consumers; that one ignores the other's is intended.
            level = logging.DEBUG
        elif facility == "GETPID":
            # A broker that has only just started is asked again; if it never answers, deliveries fail.
            level = min(level, logging.INFO)
        elif facility in ("ADDOFFSETS", "ADDPARTS", "FATAL", "TXNERR"):
            # What befalls a transaction, or the producer as a whole, is raised or returned.
            level = logging.DEBUG
        elif facility in ("FAIL", "ERROR"):
            # A lost connection is retried by the client; what it costs shows in the delivery reports.
            level = logging.DEBUG if self.repeats(line) else min(level, logging.WARNING)
        LOGGER.log(level, template, facility, client, line)

    def tell(self, settings: Mapping[str, Any], error: KafkaError) -> None:
        """Logs an error of the client's own: as a warning if it is grave and not told a short while ago.

        What befell one connection is among the client's log lines already.

        Args:
            settings: The client's settings, whose secrets stay out of the log.
            error: The error.
        """
        text = redact(reason(error), settings)
        news = is_grave(error) and not self.repeats(text)
        LOGGER.log(logging.WARNING if news else logging.DEBUG, "%s: %s", settings["client.id"], text)

    def repeats(self, line: str) -> bool:
        """Tells whether ``line`` was told a short while ago; if not, it counts as told now."""
        now = time.monotonic()
        if now - self._told.get(line, -_QUIET) < _QUIET:
            return True
        self._told = {told: at for told, at in self._told.items() if now - at < _QUIET}
        self._told[line] = now
        return False
