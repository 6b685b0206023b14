"""Counts the produce requests of a Kafka client."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

_INTERVAL_SECONDS = 0.02


class ProduceRequests:
    """Reads from the statistics of a client how many produce requests it has sent.

    Attributes:
        settings: What the client's settings must contain.
    """

    def __init__(self) -> None:
        """Begins without statistics."""
        self._counts: list[int] = []
        self.settings: dict[str, Any] = {
            "statistics.interval.ms": round(1000 * _INTERVAL_SECONDS),
            "stats_cb": self._read,
        }

    def count(self, poll: Callable[[float], object]) -> int:
        """Returns the number of requests up to now.

        Args:
            poll: Has the client report its statistics; may wait for so many seconds.
        """
        wanted = len(self._counts) + 2  # the next statistics may have been made before this call
        while len(self._counts) < wanted:
            poll(_INTERVAL_SECONDS)
        return self._counts[-1]

    def _read(self, statistics: str) -> None:
        brokers = json.loads(statistics)["brokers"].values()
        self._counts.append(sum(broker["req"].get("Produce", 0) for broker in brokers))
