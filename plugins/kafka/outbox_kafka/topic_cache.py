"""Caches which of a lane's topics exist and which are missing, and how many partitions they have."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer
from outbox_api import Repartitioned

_MISSING_SECONDS = 0.5
"""Seconds for which a missing topic is taken for missing without another look-up."""

_LOOK_UP_TIMEOUT = 1.0
_RETRY_DELAYS = (0.02, 0.05, 0.1, 0.15, 0.2)
"""Seconds before each further look-up of a topic that the broker may be creating."""

_MAX_MISSING = 10_000


class TopicStatus(Enum):
    """What a broker says about a topic."""

    EXISTS = "it exists, though the broker may not permit writing to it"
    MISSING = "it does not exist"
    INVALID_NAME = "no topic can have this name"
    UNKNOWN = "the broker did not answer"


Statuses = dict[str, TopicStatus]
LookUp = Callable[[Collection[str], Collection[str]], Statuses]
"""Looks topics up, given those among them that may be in creation; see :func:`look_up`."""

MISSING_TOPIC: Final = KafkaError(KafkaError._UNKNOWN_TOPIC)  # noqa: SLF001 - librdkafka's spelling
"""The error of a record that is not sent because its topic is missing."""

_STATUSES = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: TopicStatus.MISSING,
    KafkaError.TOPIC_EXCEPTION: TopicStatus.INVALID_NAME,
}


@dataclass(slots=True)
class _Missing:
    since: float
    looked_up_at: float


class TopicCache:
    """Remembers the status of topics. No I/O; used by one thread."""

    def __init__(self, propagation_time: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.existing: set[str] = set()
        self.partitions: dict[str, int] = {}
        """Topic → how many it has, as the brokers said last; written by look-ups, on whatever thread."""
        self._repartitioned: list[Repartitioned] = []
        self._sent_to: dict[str, int] = {}  # topic → how many it had when it was looked up for a record
        self._stale: set[str] = set()
        self._missing: dict[str, _Missing] = {}
        self._last_new = float("-inf")  # when a topic was found missing for the first time
        self._propagation_time = propagation_time
        self._clock = clock

    def is_missing(self, topic: str) -> bool:
        """Returns whether a recent look-up found the topic missing; if not, it has to be looked up."""
        missing = self._missing.get(topic)
        return missing is not None and self._clock() - missing.looked_up_at < _MISSING_SECONDS

    def may_appear(self, topic: str) -> bool:
        """Returns whether the topic is missing, but may have been created within the propagation time."""
        missing = self._missing.get(topic)
        return missing is not None and self._clock() - missing.since < self._propagation_time

    def is_new(self, topic: str) -> bool:
        """Returns whether nothing is known about the topic."""
        return topic not in self.existing and topic not in self._missing

    def is_worth_waiting_for(self, topic: str) -> bool:
        """Returns whether brokers may be creating a new topic: none was found missing lately."""
        return self.is_new(topic) and self._clock() - self._last_new >= self._propagation_time

    def refresh(self) -> None:
        """Forgets which topics exist, and how many partitions they had: they are stale."""
        self._stale |= self.existing
        self.existing.clear()
        self._sent_to.clear()

    def is_stale(self, topic: str) -> bool:
        """Returns whether nothing of a topic may be sent before it is looked up."""
        return topic in self._stale

    def recount(self) -> None:
        """Has topics be looked up for their next record whose number of partitions has changed."""
        changed = {topic for topic, count in self._sent_to.items() if self.partitions.get(topic) != count}
        self.existing -= changed

    def take_repartitioned(self) -> list[Repartitioned]:
        """Returns topics that had other partitions at their last record; each change once."""
        taken, self._repartitioned = self._repartitioned, []
        return taken

    def update(self, statuses: Statuses) -> None:
        """Stores the broker's answers to a look-up for the sake of records."""
        now = self._clock()
        for topic, status in statuses.items():
            if status is TopicStatus.EXISTS:
                self.existing.add(topic)
                self._missing.pop(topic, None)
                self._stale.discard(topic)
                self._count(topic)
            elif status is TopicStatus.MISSING:
                self.set_missing(topic, now)

    def set_missing(self, topic: str, looked_up_at: float = float("-inf")) -> None:
        """Stores that the topic is missing, or seems to be: then it is looked up before its next record."""
        self.existing.discard(topic)
        if len(self._missing) >= _MAX_MISSING:
            self._missing.clear()
        if topic not in self._missing:
            self._last_new = self._clock()
        missing = self._missing.setdefault(topic, _Missing(self._clock(), looked_up_at))
        missing.looked_up_at = looked_up_at

    def _count(self, topic: str) -> None:
        if now := self.partitions.get(topic, 0):  # 0: the broker does not tell
            before = self._sent_to.get(topic, now)
            self._sent_to[topic] = now
            if before != now:
                self._repartitioned.append(Repartitioned(topic, before, now))


def look_up(
    producer: Producer, topics: Collection[str], new: Collection[str], partitions: dict[str, int]
) -> Statuses:
    """Asks the broker for the status of topics; brokers that create topics on first use create them now.

    Takes milliseconds for each topic, about half a second more if a new one is missing, and one second if the
    broker does not answer. Afterwards the producer's own cache of topics is up to date. Topics in ``new`` may
    just be created: it waits for them. ``partitions`` receives how many each has.
    """
    statuses = _look_up_once(producer, topics, partitions)
    for delay in _RETRY_DELAYS:
        pending = [topic for topic in new if statuses[topic] is TopicStatus.MISSING]
        if not pending:
            break
        time.sleep(delay)
        statuses |= _look_up_once(producer, pending, partitions)
    return statuses


def _look_up_once(producer: Producer, topics: Iterable[str], partitions: dict[str, int]) -> Statuses:
    statuses = dict.fromkeys(topics, TopicStatus.UNKNOWN)
    with suppress(KafkaException):  # the broker does not answer, and would not for the next topic either
        for topic in statuses:
            # The client itself refuses what cannot be a topic's name, and does so again for the record.
            with suppress(RuntimeError, TypeError, ValueError):
                found = producer.list_topics(topic, timeout=_LOOK_UP_TIMEOUT).topics[topic]
                partitions[topic] = len(found.partitions)
                statuses[topic] = _STATUSES.get(found.error and found.error.code(), TopicStatus.EXISTS)
    return statuses
