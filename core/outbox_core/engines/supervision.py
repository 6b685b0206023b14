"""When a lane group in another process is restarted, and when it is given up; without I/O."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass
from time import monotonic
from typing import Any

from outbox_core.leadership.leader import Leadership
from outbox_core.steps import Sleep

log = logging.getLogger(__name__)

PAUSE_SECONDS = 0.5
"""The pause before a lost group is restarted."""
EARLY_END_SECONDS, MAX_EARLY_ENDS = 5.0, 3
"""A group that ends this soon after its start, this many times in a row, is given up."""


@dataclass(frozen=True, slots=True)
class RunGroup:
    """Runs a group until it ends. Reply: its ``GroupEnd``."""

    group: int


@dataclass(frozen=True, slots=True)
class GroupEnd:
    """How a group has ended.

    Attributes:
        error: The error that ended it.
        lost: Whether only its process is lost, so that a restart may succeed.
        reason: The error in one line.
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
    early_end_seconds: float = EARLY_END_SECONDS,
) -> Generator[RunGroup | Sleep, Any, Exception | None]:
    """Runs one group, and restarts it whenever it is lost, until the leadership is over.

    Stops the leadership if the group cannot be restarted.

    Args:
        leadership: The leadership, which learns when to expect the group's first report.
        group: The group's number.
        clock: Returns seconds on a monotonic clock.
        pause: Seconds before a lost group is restarted.
        early_end_seconds: A group that ends sooner counts as an early end.

    Returns:
        Why the group was given up, or ``None`` once the leadership is over.
    """
    early_ends = 0
    while not leadership.over:
        started = clock()
        leadership.expect([group])
        end: GroupEnd = yield RunGroup(group)
        if leadership.over:
            return None
        early_ends = early_ends + 1 if clock() < started + early_end_seconds else 0
        if early_ends == MAX_EARLY_ENDS or not end.lost:
            leadership.stop()
            return end.error
        log.warning("lane group %d was lost, restarting it: %s", group, end.reason)
        yield Sleep(pause)
    return None
