"""When a lane group in another process is started anew, and when that is given up; without I/O."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass
from time import monotonic
from typing import Any

from outbox_core.leadership.leader import Leadership

log = logging.getLogger(__name__)

PAUSE_SECONDS = 0.5
"""The pause before a lost group is started anew."""
STILLBORN_SECONDS, STILLBORN_MOST = 5.0, 3
"""A group that ends this soon, this many times in a row, is not worth another start."""


@dataclass(frozen=True, slots=True)
class RunGroup:
    """Runs a group until it ends. Reply: its ``GroupEnd``."""

    group: int


@dataclass(frozen=True, slots=True)
class Sleep:
    """Waits. No reply."""

    seconds: float


@dataclass(frozen=True, slots=True)
class GroupEnd:
    """How a group has ended.

    Attributes:
        error: Why.
        lost: Whether only the group's process is lost, and another one can be had.
        reason: The error in a line.
    """

    error: Exception
    lost: bool
    reason: str


def supervise_group(
    leadership: Leadership,
    group: int,
    *,
    clock: Callable[[], float] = monotonic,
    pause: float = PAUSE_SECONDS,
    stillborn_seconds: float = STILLBORN_SECONDS,
) -> Generator[RunGroup | Sleep, Any, Exception | None]:
    """Runs one group, and again whenever it is lost, until its term is over.

    Ends the term when the group cannot be kept alive.

    Args:
        leadership: The term, which is told when to expect the group's first report.
        group: The group's number.
        clock: Returns seconds, and never goes back.
        pause: Seconds before a lost group is started anew.
        stillborn_seconds: A group that ends sooner was stillborn.

    Returns:
        Why the group cannot be kept alive, or ``None`` once the term is over.
    """
    stillborn = 0
    while not leadership.over:
        started = clock()
        leadership.expect([group])
        end: GroupEnd = yield RunGroup(group)
        if leadership.over:
            return None
        stillborn = stillborn + 1 if clock() < started + stillborn_seconds else 0
        if stillborn == STILLBORN_MOST or not end.lost:
            leadership.stop()
            return end.error
        log.warning("lane group %d was lost, starting it anew: %s", group, end.reason)
        yield Sleep(pause)
    return None
