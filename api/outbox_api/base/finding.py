"""What `outbox check` reports: one finding for each thing that was looked at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
    """

    level: Level
    subject: str
    message: str
    cure: str = ""
