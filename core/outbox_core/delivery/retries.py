"""Retries: how often a key's first record has failed, whether it is tried again or parked, and when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from sys import intern

from outbox_api import Failure, MarkedRecord, Poison

from outbox_core.config.settings import Failures
from outbox_core.delivery.held import MAX_EXCLUDED_KEYS, TRIED_KEYS, Held, HeldTopics

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
    """The failed attempts of one record, and thereby of its key.

    Attributes:
        head: The record's id.
        since: When it failed first, in the caller's time.
        failures: How often it failed.
        incurable: How many of these failures were not retryable.
        reason: Why it failed last.
        faulty: Whether the harvester itself found that the row cannot be a message, so that no try can help.
    """

    head: int
    since: float
    failures: int = 0
    incurable: int = 0
    reason: str = ""
    faulty: bool = False

    def add(self, failure: Failure) -> None:
        """Counts another failure."""
        self.failures += 1
        self.incurable += not failure.retryable
        self.faulty = failure.record.fault is not None
        self.reason = intern(failure.reason)  # of many keys that fail, most fail alike

    def poison(self) -> Poison:
        """Returns the record as the head of a key to be parked."""
        return Poison(self.head, self.reason, self.failures)


@dataclass(slots=True)
class Hold(Attempts):
    """The hold of a key that failed.

    Attributes:
        until: When the key may be tried again, in the caller's time.
        parking: Whether the key is to be parked rather than tried again.
        ids: While the key is held, its marked rows, to be reset when the hold ends.
    """

    until: float = 0.0
    parking: bool = False
    ids: list[int] = field(default_factory=list)


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
        grown = settings.first_backoff * 2.0 ** min(tries - 1, 30)
        return jittered(min(grown, settings.longest_backoff), self._chance)


class FailedKeys:
    """The keys of an exactly-once lane that failed, and of which nothing was delivered since.

    Args:
        policy: Decides when a failed record is tried again, and when its key is parked.

    Attributes:
        held: Keys that wait until they are tried again; selections leave them out.
        topics: Topics that fail as a whole; selections leave them out, too.
    """

    def __init__(self, policy: RetryPolicy) -> None:
        self.policy = policy
        self.held = Held(MAX_EXCLUDED_KEYS, policy.pause_after)
        self.topics = HeldTopics(policy.pause_after)
        self.attempts: dict[tuple[int, str], Attempts] = {}  # by source and key: ids rise within a source
        self._size = 0  # of their keys
        self._tried = False  # whether the last look took in some that had been held

    def add(
        self, now: float, batch: Sequence[MarkedRecord], failures: Sequence[Failure], source: int = 0
    ) -> tuple[float, list[Poison]]:
        """Counts the failures of an aborted batch.

        A key whose first record has failed is held, so that the lane goes on with the others. If there is no
        room for it, or it is not known which record is at fault, the lane itself waits; but not for a failure
        that is not retryable and soon parks the key.

        Args:
            now: The caller's time.
            batch: All records of the batch, ordered by id.
            failures: Those because of which it was aborted.
            source: The batch's source.

        Returns:
            The seconds to wait before what is not held is tried again, and the records whose keys are to be
            parked, which are forgotten. A record is parked only if it is the first of its key in the batch.
        """
        if self._size > MAX_FAILED_BYTES:
            self._forget_oldest()
        first = {record.key: record.id for record in reversed(batch)}
        parking: set[str] = set()
        pause = 0.0
        failing = {failure.record.key for failure in failures}
        sound = {record.topic for record in batch if record.key not in failing}
        for failure in failures:
            is_first = first[failure.record.key] == failure.record.id
            attempts = self._count(now, failure, source, is_first=is_first)
            if is_first and self.policy.parks(attempts):
                parking.add(failure.record.key)
                continue
            suspect = failure.suspect and len(batch) > 1
            if not failure.retryable and failure.record.topic not in sound:
                self._judge_topic(now, failure, attempts)
            waits = suspect or (is_first and not self._hold(now, failure.record, attempts))
            if waits and (failure.retryable or self.policy.full):
                pause = max(pause, self.policy.pause(attempts))
        return pause, [self._forget(source, key).poison() for key in parking]

    def delivered(self, records: Sequence[MarkedRecord], source: int = 0) -> None:
        """Forgets the keys of delivered records, unless the record that failed is a later one.

        Args:
            records: The records of a batch.
            source: The batch's source.
        """
        self.topics.delivered(records)
        if not self.attempts:
            return
        for record in records:
            attempts = self.attempts.get((source, record.key))
            if attempts is not None and attempts.head <= record.id:
                self._forget(source, record.key)

    @property
    def excludes(self) -> bool:
        """Whether selections leave out anything but parked keys."""
        return bool(self.held) or bool(self.topics.held)

    def leaves_out(self, record: MarkedRecord) -> bool:
        """Returns whether looks leave out a record's key or topic."""
        return record.key in self.held or record.topic in self.topics.held

    def next_look(self, now: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Returns the keys and topics that the next look leaves out: all held ones but a few that are due.

        What it takes in may fail, and then all is given up that the look finds. So the look after it takes in
        none. A key is held again when it fails again.
        """
        tried, self._tried = self._tried, False
        if tried:
            return self.held.names, self.topics.held.names
        topics = self.topics.held.next_look(now)
        self._tried = bool(self.held.release(now, TRIED_KEYS)) or len(topics) < len(self.topics.held)
        return self.held.names, topics

    def blocked(self, now: float) -> tuple[int, float]:
        """Returns how many keys have failed, and for how many seconds the first of them; 0 for none."""
        return len(self.attempts), now - min((each.since for each in self.attempts.values()), default=now)

    def _forget(self, source: int, key: str) -> Attempts:
        self.held.discard(key)
        self._size -= len(key)
        return self.attempts.pop((source, key))

    def _forget_oldest(self) -> None:
        for source, key in list(self.attempts):
            if self._size <= MAX_FAILED_BYTES // 2:
                return
            if key not in self.held:
                self._forget(source, key)

    def _judge_topic(self, now: float, failure: Failure, attempts: Attempts) -> None:
        """Counts the failing keys of a topic, each once: those that are tried again say nothing new."""
        if attempts.incurable == 1 or failure.record.topic in self.topics.held:
            self.topics.failed(now, [failure])

    def _hold(self, now: float, record: MarkedRecord, attempts: Attempts) -> bool:
        """Leaves out the key of a failed record, unless its topic is; returns whether there was room."""
        return record.topic in self.topics.held or self.held.add(now, record.key, attempts.failures)

    def _count(self, now: float, failure: Failure, source: int, *, is_first: bool) -> Attempts:
        """Counts a failure, but for that of a record of whose key an earlier one has failed and is next.

        Otherwise two that fail for different reasons, each in batches of its own, would reset each other's.
        """
        record = failure.record
        attempts = self.attempts.get((source, record.key))
        if attempts is None:
            self._size += len(record.key)
        elif attempts.head < record.id and not is_first:
            return attempts
        if attempts is None or attempts.head != record.id:
            attempts = self.attempts[source, record.key] = Attempts(record.id, now)
        attempts.add(failure)
        return attempts


class Backoff:
    """When a database that fails is tried again.

    Args:
        first: Seconds after the first error; they double with each further one, up to ``IO_BACKOFF_SECONDS``.
        chance: Returns a number from 0 up to 1, for the jitter.

    Attributes:
        due: When the next request may be made, in the caller's time.
    """

    def __init__(self, first: float, chance: Callable[[], float]) -> None:
        self.due = 0.0
        self._first = first
        self._chance = chance
        self._errors = 0

    def failed(self, now: float) -> None:
        """Handles an error."""
        pause = self._first * 2.0 ** min(self._errors, 10)
        self.due = now + jittered(min(pause, IO_BACKOFF_SECONDS), self._chance)
        self._errors += 1

    def answered(self) -> None:
        """Handles an answer without an error."""
        self._errors = 0


def jittered(seconds: float, chance: Callable[[], float]) -> float:
    """Returns a pause that is randomly a little longer or shorter."""
    return seconds * (1 + JITTER * (2 * chance() - 1))
