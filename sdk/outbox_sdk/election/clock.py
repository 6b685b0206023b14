"""The clock by which a process measures its own leadership."""

from __future__ import annotations

import time


def elapsed() -> float:
    """Returns seconds on a clock that never goes back.

    The clock includes the time that the machine was suspended, where the system has such a clock: during that
    time another process may have been elected.
    """
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
