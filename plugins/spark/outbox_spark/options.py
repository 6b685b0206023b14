"""The options of the engine ``spark``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from outbox_api import ConfigError, EngineOptions

SPECULATION = "spark.speculation"
"""Spark's setting with which it runs a copy of a task that takes long, as lanes do: they never end."""


@dataclass(frozen=True)
class SparkOptions(EngineOptions):
    """The keys beside ``driver: spark``.

    Attributes:
        master: The Spark master's URL; ``None`` embeds ``local[…]`` in this process.
        settings: Spark settings by name; left out of the repr, as they may contain secrets.

    Raises:
        ConfigError: The settings would have Spark run copies of lanes.
    """

    master: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.settings.get(SPECULATION, "").strip().lower() == "true":
            raise ConfigError(
                f"{SPECULATION} would run copies of lanes, which never end, and each copy would fence its "
                "original; remove it from harvest.engine.settings"
            )

    def master_for(self, slots: int) -> str:
        """Returns the master's URL, by default of an embedded Spark with so many task slots."""
        return self.settings.get("spark.master") or self.master or f"local[{slots}]"
