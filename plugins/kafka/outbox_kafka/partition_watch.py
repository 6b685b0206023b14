"""Looks now and then whether somebody has added partitions to the topics of a sender."""

from __future__ import annotations

import time
from functools import partial

from outbox_kafka.topic_cache import LookUp, Statuses, TopicCache, TopicStatus
from outbox_kafka.topic_lookup import BackgroundCalls

WATCH_SECONDS = 60.0
"""Seconds between two looks. The client looks every five minutes by itself, and tells nobody."""
_AT_ONCE = 20
"""Topics of one call in the background: look-ups for records, and the end of a sender, wait for it."""
_PAUSE_SECONDS = 1.0
"""Seconds between two calls of one look: each topic is a request, and each lane asks."""


class PartitionWatch:
    """Asks in the background for the partitions of topics, with a request for each."""

    def __init__(self, cache: TopicCache, look_up: LookUp, background: BackgroundCalls) -> None:
        self._cache = cache
        self._look_up = look_up
        self._background = background
        self._due = time.monotonic() + WATCH_SECONDS
        self._left: list[str] = []

    def poll(self) -> None:
        """Begins a look if it is due, or goes on with it; does not wait."""
        if (now := time.monotonic()) < self._due or self._background:
            return
        left = self._left or list(self._cache.existing)
        topics, self._left = left[:_AT_ONCE], left[_AT_ONCE:]
        self._due = now + (_PAUSE_SECONDS if self._left else WATCH_SECONDS)
        if topics:
            self._background.submit(partial(self._look_up, topics, ()), self._looked)

    def _looked(self, statuses: Statuses) -> None:
        self._cache.recount()
        if TopicStatus.UNKNOWN in statuses.values():  # the next call would only wait, too
            self._left, self._due = [], time.monotonic() + WATCH_SECONDS
