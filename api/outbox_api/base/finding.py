"""What `outbox check` reports: one finding for each thing that was looked at."""

from __future__ import annotations

import timeit
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

ROUND_TRIPS = 5
"""How many are measured."""


class Level(StrEnum):
    """How grave a finding is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked before a start.

    Attributes:
        level: ``ERROR`` when harvesting cannot work, ``WARNING`` when it works but a guarantee or the
            performance suffers, ``OK`` when all is well.
        subject: What was looked at, in two or three words ("outbox table", "broker version").
        message: What was seen, in one sentence.
        cure: What the reader can do about it; empty for ``OK``.
        round_trip: Seconds that a round trip to the server takes, if the finding says that it was reached.
    """

    level: Level
    subject: str
    message: str
    cure: str = ""
    round_trip: float | None = field(default=None, kw_only=True)


def shortest(ask: Callable[[], object]) -> float:
    """Returns how many seconds a round trip takes: the shortest of a few of a function that takes one."""
    return min(timeit.repeat(ask, number=1, repeat=ROUND_TRIPS))
