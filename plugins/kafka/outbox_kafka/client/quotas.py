"""What brokers tell of quotas: to slow a client down, a broker reads nothing more of it for a while."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache
from time import monotonic
from typing import Final

from confluent_kafka import ThrottleEvent

_LOGGED_SECONDS: Final = 0.1
"""A shorter delay is no reason for a line in the log."""

_QUIET_SECONDS: Final = 600.0
"""After so long without such a delay, the next one is logged again."""

_log = logging.getLogger("outbox.kafka")


class Quota:
    """For how long brokers delay one client because a quota is used up; for its ``throttle_cb``.

    The client calls it during ``poll``.
    """

    def __init__(self, name: str, clock: Callable[[], float] = monotonic) -> None:
        self._name = name
        self._clock = clock
        self._until = float("-inf")

    def __call__(self, event: ThrottleEvent) -> None:
        """Receives how long a broker delays this client's next request."""
        if event.throttle_time < _LOGGED_SECONDS:
            return
        if not self.is_used_up:
            _log.warning(
                "%s: a quota of Kafka's is used up: broker %d delays this client, the first time by %.1f s;"
                " records leave as fast as it permits: producer_byte_rate (or request_percentage) of this"
                " user or client id limits them",
                *(self._name, event.broker_id, event.throttle_time),
            )
        self._until = max(self._until, self._clock() + event.throttle_time)

    @property
    def seconds(self) -> float:
        """For how many more seconds a broker reads nothing of this client; 0 if all do."""
        return max(0.0, self._until - self._clock())

    @property
    def is_used_up(self) -> bool:
        """Whether a quota has delayed this client within the last ten minutes."""
        return self._clock() < self._until + _QUIET_SECONDS


@lru_cache(maxsize=1000)
def quota_of(client: str) -> Quota:
    """Returns the quota of a client id: its next producer is delayed as the one before was."""
    return Quota(client)
