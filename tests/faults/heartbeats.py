"""Records the heartbeats that lanes write beside their fence."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from threading import Event, Thread
from types import TracebackType
from typing import Any, Self

from outbox_api import Dialect, DriverError

from ..databases import Lookout  # noqa: TID252 - pytest gives tests no absolute name

GLANCE = 0.25
"""Seconds between two queries; lanes write once a second."""


class Beats:
    """Queries the fence periodically; a context manager.

    Args:
        dialect: The outbox's dialect.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._fence = Lookout(dialect)
        self._readings: dict[tuple[int, int, int], dict[float, Mapping[str, Any]]] = {}
        self._tokens: set[int] = set()
        self._ending = Event()
        self._thread = Thread(target=self._look, name="beats", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()

    def leaders_since(self, token: int) -> int:
        """Returns how many leaders were seen that came after the one with that token."""
        return sum(each > token for each in self._tokens)

    def risen(self, name: str) -> list[tuple[float, int]]:
        """Yields when a counter of any lane rose, in seconds since the epoch, and by how much."""
        found = []
        for metrics_by_lane in list(self._readings.values()):
            before = 0
            for at, metrics in sorted(metrics_by_lane.items()):
                now = int(metrics.get(name, 0))
                if now > before:
                    found.append((at, now - before))
                before = now
        return found

    def _look(self) -> None:
        with closing(self._fence):
            while not self._ending.wait(GLANCE):
                try:
                    lane_statuses = self._fence.lane_statuses()
                except DriverError:
                    continue  # the database is away
                self._tokens.update(each.fence.token for each in lane_statuses)
                for each in lane_statuses:
                    if each.heartbeat_at is not None:
                        lane = (each.fence.token, each.fence.lane, each.fence.epoch)
                        self._readings.setdefault(lane, {})[each.heartbeat_at.timestamp()] = each.metrics
