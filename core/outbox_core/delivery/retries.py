"""Retries: how often a key's first record has failed, whether it is tried again or parked, and when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from sys import intern

from outbox_api import Failure, Poison

from outbox_core.settings import Failures

IO_BACKOFF_SECONDS = 5.0
"""The longest pause between two tries at a database that fails."""
FAULTY_SHARE = 10
"""So many times ``mostParkedKeys`` is the limit for keys whose row the harvester itself found faulty."""
MAX_FAILED_BYTES = 8 << 20
"""How many characters keys have together whose failures are remembered though the keys are not held: those of
a topic that is held as a whole, or whose rows were deleted.
"""
JITTER = 0.2
"""The random share of a pause that is added or subtracted, so that retries spread."""


@dataclass(slots=True)
class Attempts:
    """The failed attempts of one record, and thereby of its key."""

    head: int  # the record's id
    since: float  # when it failed first, in the caller's time
    failures: int = 0
    incurable: int = 0  # how many of these failures were not retryable
    reason: str = ""
    faulty: bool = False
    """Whether the harvester itself found that the row cannot be a message, so that no try can help."""

    def add(self, failure: Failure) -> None:
        """Counts another failure."""
        self.failures += not failure.innocent
        self.incurable += not failure.retryable
        self.faulty = failure.record.fault is not None
        self.reason = intern(failure.reason)  # of many keys that fail, most fail alike

    def poison(self) -> Poison:
        """Returns the record as the head of a key to be parked."""
        return Poison(self.head, self.reason, self.failures)


@dataclass(slots=True)
class Hold(Attempts):
    """The hold of a key that failed."""

    until: float = 0.0  # when the key may be tried again, in the caller's time
    parking: bool = False  # whether the key is to be parked rather than tried again
    ids: list[int] = field(default_factory=list)
    """While the key is held, its marked rows, to be reset when the hold ends."""


class RetryPolicy:
    """Decides whether a failed record is tried again, when, and when its key is parked.

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
        if attempts.faulty:
            parks = self._parked < FAULTY_SHARE * settings.most_parked_keys
        else:
            parks = enough and not self.full
        self.parking += parks
        return parks

    @property
    def full(self) -> bool:
        """Whether the limit of parked keys is reached."""
        return self._parked >= self._settings.most_parked_keys

    @property
    def _parked(self) -> int:
        return self.parked + self.parking

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
        return self.pause_after(attempts.failures)

    def pause_after(self, tries: int) -> float:
        """Returns the pause after so many tries that failed, in seconds."""
        settings = self._settings
        return jittered(doubled(settings.first_backoff, tries - 1, settings.longest_backoff), self._chance)


class Backoff:
    """When something that fails is tried again, after pauses that double."""

    def __init__(
        self, first: float, chance: Callable[[], float], longest: float = IO_BACKOFF_SECONDS
    ) -> None:
        self.due = 0.0  # when the next request may be made, in the caller's time
        self._first, self._longest = first, longest
        self._chance = chance
        self._errors = 0

    def failed(self, now: float) -> float:
        """Handles an error; returns the pause."""
        pause = jittered(doubled(self._first, self._errors, self._longest), self._chance)
        self.due = now + pause
        self._errors += 1
        return pause

    def answered(self) -> None:
        """Handles an answer without an error."""
        self._errors = 0


def doubled(first: float, times: int, longest: float) -> float:
    """Returns a pause that has doubled so many times, up to the longest."""
    return min(first * 2.0 ** min(times, 30), longest)


def jittered(seconds: float, chance: Callable[[], float]) -> float:
    """Returns a pause that is randomly a little longer or shorter."""
    return seconds * (1 + JITTER * (2 * chance() - 1))
