"""Whether anybody still renews a lease, as whoever wants it can tell without a common clock."""

from __future__ import annotations

from collections.abc import Callable

from outbox_sdk.election.clock import elapsed


class LeaseWatch:
    """For how long a lease has looked the same to one process, by that process's monotonic clock.

    Whoever renewed it counts from before the renewal, so its leadership has ended when others have seen the
    same renewal for the length of the lease. It needs no clock that two processes share.

    Args:
        clock: Returns seconds, and never goes back.
    """

    def __init__(self, clock: Callable[[], float] = elapsed) -> None:
        self._clock = clock
        self._state: object = None
        self._since = 0.0

    def left(self, state: object, seconds: float) -> float:
        """Handles a look at the lease.

        Args:
            state: What was seen, which each renewal and each new holder changes. Never ``None``.
            seconds: The length of the lease.

        Returns:
            Seconds until the lease has looked the same for that long; 0 or less if it has.
        """
        now = self._clock()
        if state != self._state:
            self._state, self._since = state, now
        return self._since + seconds - now
