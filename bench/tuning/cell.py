"""What is measured: a cell is one harvester, with its links, records and settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

LOOSE, EXACT = "at-least-once", "exactly-once"


@dataclass(frozen=True)
class Cell:
    """One harvester.

    Attributes:
        delivery: The delivery.
        database: Milliseconds of a round trip to the database.
        broker: The same to the broker.
        size: Bytes of a value.
        keys: How many keys; 0 for as many as a Zipf distribution draws.
        lanes: ``sendConcurrency``.
        rows: Of the backlog.
        settings: More keys of ``limits``, or, with a dot, of ``producerKafkaConfig``.
        idle: Whether it is the cost of being idle that matters.
    """

    delivery: str
    database: int = 20
    broker: int = 20
    size: int = 1000
    keys: int = 100_000
    lanes: int = 1
    rows: int = 20_000
    settings: tuple[tuple[str, int | str], ...] = ()
    idle: bool = False

    def having(self, settings: Mapping[str, int | str]) -> Cell:
        """Returns the same cell with some settings."""
        return replace(self, settings=tuple(settings.items()))

    def over(self, milliseconds: int) -> Cell:
        """Returns the same cell with such links to database and broker."""
        return replace(self, database=milliseconds, broker=milliseconds)

    @property
    def limits(self) -> Mapping[str, Any]:
        """The section ``limits``."""
        return {
            "sendConcurrency": self.lanes,
            **{name: value for name, value in self.settings if "." not in name},
        }

    @property
    def kafka(self) -> Mapping[str, Any]:
        """The section ``producerKafkaConfig``."""
        return {name: value for name, value in self.settings if "." in name}
