"""A candidate that records what an elector tells it."""

from __future__ import annotations

import threading
import time


class RecordingCandidate:
    """A candidate within the tests' own process; see :class:`outbox_api.Candidate`.

    Attributes:
        told: The names of its events with their times, in seconds of the monotonic clock.
        error: What ``failed`` was called with.
    """

    def __init__(self) -> None:
        """Begins without an event."""
        self.told: list[tuple[str, float]] = []
        self.error: Exception | None = None
        self._changed = threading.Condition()

    @property
    def story(self) -> list[str]:
        """The names of its events, in order."""
        return [what for what, _ in self.told]

    def acquired(self) -> None:
        """Records it."""
        self._record("acquired")

    def revoked(self) -> None:
        """Records it."""
        self._record("revoked")

    def fenced(self) -> None:
        """Records it."""
        self._record("fenced")

    def failed(self, error: Exception) -> None:
        """Records it, and keeps the error."""
        self.error = error
        self._record("failed")

    def wait(self, story: list[str], timeout: float = 60.0) -> float:
        """Waits until these events were told, and no others before them; returns the time of the last one.

        Further ones may have followed by then.
        """
        count = len(story)
        with self._changed:
            assert self._changed.wait_for(lambda: self.story[:count] == story, timeout), (
                f"{story} expected, told were {self.told}, {self.error}"
            )
            return self.told[count - 1][1]

    def _record(self, what: str) -> None:
        with self._changed:
            self.told.append((what, time.monotonic()))
            self._changed.notify_all()
