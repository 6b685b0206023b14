"""Typed settings, and the reader that makes them from YAML.

The reader is imported when it is asked for: a lane's process has its settings, and reads no YAML.
"""

from typing import TYPE_CHECKING, Any

from outbox_core.config.logs import KeyNames, LogFormat, LoggingSettings, LogLevel
from outbox_core.config.settings import (
    Choice,
    Delivery,
    Failures,
    HarvestSettings,
    Limits,
    Settings,
)

if TYPE_CHECKING:
    from outbox_core.config.reader import configure, load, locate, parse

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


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from outbox_core.config import reader  # noqa: PLC0415 - see above

    return getattr(reader, name)
