"""The keys of an exactly-once lane that fail: which are left out, tried again, or parked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from outbox_api import Failure, MarkedRecord, Poison

from outbox_core.delivery.held import MAX_EXCLUDED_KEYS, TRIED_KEYS, Held, HeldTopics
from outbox_core.delivery.retries import MAX_FAILED_BYTES, Attempts, RetryPolicy


class FailedKeys:
    """The keys of an exactly-once lane that failed, and of which nothing was delivered since."""

    def __init__(self, policy: RetryPolicy) -> None:
        self.policy = policy
        self.held = Held(MAX_EXCLUDED_KEYS, policy.pause_after)
        """Keys that wait until they are tried again; selections leave them out."""
        self.topics = HeldTopics(policy.pause_after)
        """Topics that fail as a whole; selections leave them out, too."""
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

    def going_on(
        self, batch: Sequence[MarkedRecord], failures: Sequence[Failure], poisons: Sequence[Poison]
    ) -> tuple[list[MarkedRecord], bool]:
        """Returns the records of an aborted batch that are published again at once, after :meth:`add`.

        These are the ones before the first failed record, without what is left out from now on. A failed
        record is not left out if it was not the first of its key, or is only a suspect, or there was no room.

        Returns:
            The records, and whether there is such a failed record.
        """
        heads, culprits = {each.id for each in poisons}, {each.record.id for each in failures}
        parked = {each.record.key for each in failures if each.record.id in heads}
        left = [
            each
            for each in batch
            if not (each.key in parked or each.key in self.held or each.topic in self.topics.held)
        ]
        rest = list(takewhile(lambda record: record.id not in culprits, left))
        return rest, len(rest) < len(left)

    def delivered(self, records: Sequence[MarkedRecord], source: int = 0) -> None:
        """Forgets the keys of delivered records, unless the record that failed is a later one."""
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

    def blocked(self, now: float) -> tuple[int, float, str]:
        """Returns how many keys have failed, for how many seconds the first of them, and why; 0 for none."""
        first = min(self.attempts.values(), key=lambda each: each.since, default=None)
        return len(self.attempts), now - first.since if first else 0.0, first.reason if first else ""

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
