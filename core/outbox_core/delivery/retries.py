"""The retry policy: how often a key's first record has failed, and whether it is tried again or parked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from sys import intern

from outbox_sdk import Failure, Poison

from outbox_core.config.settings import Failures

JITTER = 0.2
"""The random share of a pause that is added or subtracted, so that retries spread."""


@dataclass(slots=True)
class Attempts:
    """The failed attempts of one record, and thereby of its key.

    Attributes:
        head: The record's id.
        since: When it failed first, in the caller's time.
        failures: How often it failed.
        incurable: How many of these failures were not retryable.
        reason: Why it failed last.
    """

    head: int
    since: float
    failures: int = 0
    incurable: int = 0
    reason: str = ""

    def add(self, failure: Failure) -> None:
        """Counts another failure."""
        self.failures += 1
        self.incurable += not failure.retryable
        self.reason = intern(failure.reason)  # of many keys that fail, most fail alike

    def poison(self) -> Poison:
        """Returns the record as the head of a key to be parked."""
        return Poison(self.head, self.reason, self.failures)


class RetryPolicy:
    """Decides whether a failed record is tried again, when, and when its key is parked.

    Args:
        settings: The section ``failures`` of the configuration.
        chance: Returns a number from 0 up to 1, for the jitter.

    Attributes:
        parked: Keys of this outbox known to be parked.
        parking: Keys that this lane is about to park.
        done: Keys that this lane has parked.
    """

    def __init__(self, settings: Failures, chance: Callable[[], float]) -> None:
        self.parked = self.parking = self.done = 0
        self._settings = settings
        self._chance = chance

    def parks(self, attempts: Attempts) -> bool:
        """Returns whether a record's key is to be parked now, and counts it in ``parking`` if so."""
        settings = self._settings
        retryable_after = settings.park_retryable_after
        enough = attempts.incurable >= settings.park_after or (
            retryable_after is not None and attempts.failures >= retryable_after
        )
        parks = enough and not self.full
        self.parking += parks
        return parks

    @property
    def full(self) -> bool:
        """Whether the limit of parked keys is reached."""
        return self.parked + self.parking >= self._settings.most_parked_keys

    def counted(self, keys: int, done_before: int) -> None:
        """Sets the outbox's number of parked keys, counted when ``done`` was ``done_before``."""
        self.parked = keys + self.done - done_before

    def parking_done(self, keys: int, parked: int) -> None:
        """Records that of ``keys`` that were about to be parked, ``parked`` were."""
        self.parking -= keys
        self.parked += parked
        self.done += parked

    def pause(self, attempts: Attempts) -> float:
        """Returns the pause before the next attempt, in seconds."""
        settings = self._settings
        grown = settings.first_backoff * 2.0 ** min(attempts.failures - 1, 30)
        return jittered(min(grown, settings.longest_backoff), self._chance)


def jittered(seconds: float, chance: Callable[[], float]) -> float:
    """Returns a pause that is randomly a little longer or shorter."""
    return seconds * (1 + JITTER * (2 * chance() - 1))
