"""How fast tokens can be tried at the form: decided without I/O."""

from __future__ import annotations

from collections import deque

FEW = 10
"""So many failures in :data:`WINDOW_SECONDS` have no consequence."""
WINDOW_SECONDS = 60.0
DELAY_SECONDS = 1.0
"""How long each wrong attempt takes after more."""
MOST_WAITING = 20
"""So many attempts wait at a time; others are refused."""


class RateLimit:
    """Counts failures of all clients together: whoever guesses has many addresses."""

    def __init__(self) -> None:
        self._failed_at: deque[float] = deque(maxlen=FEW)
        self._waiting = 0

    def delay(self, now: float) -> float:
        """Returns how many seconds the next wrong attempt has to wait for its answer."""
        full = len(self._failed_at) == FEW
        return DELAY_SECONDS if full and now - self._failed_at[0] < WINDOW_SECONDS else 0.0

    def failed(self, now: float) -> None:
        """Counts a failure."""
        self._failed_at.append(now)

    def begin_waiting(self) -> bool:
        """Returns whether one more may wait; if so, it must end that."""
        if self._waiting >= MOST_WAITING:
            return False
        self._waiting += 1
        return True

    def end_waiting(self) -> None:
        """Makes room for another one."""
        self._waiting -= 1
