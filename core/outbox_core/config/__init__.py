"""Typed settings, and the reader that makes them from YAML."""

from outbox_core.config.logs import KeyNames, LogFormat, LoggingSettings, LogLevel
from outbox_core.config.reader import configure, load, locate, parse
from outbox_core.config.settings import (
    Choice,
    Delivery,
    Failures,
    HarvestSettings,
    Limits,
    Settings,
)

__all__ = [
    "Choice",
    "Delivery",
    "Failures",
    "HarvestSettings",
    "KeyNames",
    "Limits",
    "LogFormat",
    "LogLevel",
    "LoggingSettings",
    "Settings",
    "configure",
    "load",
    "locate",
    "parse",
]
