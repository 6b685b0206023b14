"""The options of the engine ``spark``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from outbox_sdk import EngineOptions


@dataclass(frozen=True)
class SparkOptions(EngineOptions):
    """The keys beside ``driver: spark``.

    Attributes:
        master: The Spark master's URL; ``None`` embeds ``local[…]`` in this process.
        settings: Spark settings by name; left out of the repr, as they may contain secrets.
    """

    master: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)

    def master_for(self, slots: int) -> str:
        """Returns the master's URL, by default of an embedded Spark with so many task slots."""
        return self.settings.get("spark.master") or self.master or f"local[{slots}]"
