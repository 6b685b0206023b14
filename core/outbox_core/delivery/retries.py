"""How often a key's first record has failed, and what the policy makes of it: another try, or parking."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from sys import intern

from outbox_sdk import Failure, Poison

from outbox_core.config.settings import Failures

JITTER = 0.2
"""Which part of a pause chance may add or take away, so that what failed together does not come together."""


@dataclass(slots=True)
class Attempts:
    """The failures of one record, and thereby of its key.

    Attributes:
        head: The record's id.
        since: When it failed first, in the caller's time.
        failures: How often it failed.
        incurable: How often of these sending the same bytes again could not have helped.
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
        """Returns what is said of the record when its key is parked."""
        return Poison(self.head, self.reason, self.failures)


class RetryPolicy:
    """Decides what comes of failures.

    Args:
        settings: What the user wants.
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
        """Tells whether a record's key is to be parked now; then it counts among those about to be."""
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
        """Whether so many keys are parked that no more are."""
        return self.parked + self.parking >= self._settings.most_parked_keys

    def counted(self, keys: int, done_before: int) -> None:
        """Takes how many keys of the outbox are parked, by a count that was asked for at ``done_before``."""
        self.parked = keys + self.done - done_before

    def parking_done(self, keys: int, parked: int) -> None:
        """Takes that of ``keys`` that were about to be parked, ``parked`` are."""
        self.parking -= keys
        self.parked += parked
        self.done += parked

    def pause(self, attempts: Attempts) -> float:
        """Returns for how many seconds a record that failed is not tried again."""
        settings = self._settings
        grown = settings.first_backoff * 2.0 ** min(attempts.failures - 1, 30)
        return jittered(min(grown, settings.longest_backoff), self._chance)


def jittered(seconds: float, chance: Callable[[], float]) -> float:
    """Returns a pause that chance has made a little longer or shorter."""
    return seconds * (1 + JITTER * (2 * chance() - 1))
