"""What a lane knows of the topics that it sends to: which exist, and which do not."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer

_FRESH = 0.5
"""Seconds for which a topic that was found missing is taken for missing without being asked for again."""

_ASKING = 1.0
"""Seconds to wait for the broker's answer."""

_PAUSES = (0.02, 0.05, 0.1, 0.15, 0.2)
"""Seconds between two looks for a topic that may be about to be created, as brokers do on first use."""

_MOST = 10_000
"""Missing topics that are kept in mind."""


class Standing(Enum):
    """What a broker says of a topic."""

    THERE = "it exists, though the broker may not let us write to it"
    MISSING = "it does not exist"
    NO_NAME = "no topic can have such a name"
    UNTOLD = "it did not answer"


Answers = dict[str, Standing]
"""Topic → what the broker said of it."""
Find = Callable[[Collection[str], Collection[str]], Answers]
"""Asks for topics, given those among them that are news; see :func:`find`."""

MISSING: Final = KafkaError(KafkaError._UNKNOWN_TOPIC)  # noqa: SLF001 - librdkafka's spelling
"""Why a record to a missing topic is not sent."""

_STANDINGS = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: Standing.MISSING,
    KafkaError.TOPIC_EXCEPTION: Standing.NO_NAME,
}


@dataclass(slots=True)
class _Missing:
    since: float
    asked: float


class KnownTopics:
    """Remembers what the broker told of topics. No I/O; used by one thread.

    Attributes:
        there: The topics known to exist; whoever sends looks here first.
    """

    def __init__(self, patience: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Knows nothing yet.

        Args:
            patience: Seconds for which a missing topic may only not have been seen yet.
            clock: Seconds on a clock that never goes back.
        """
        self.there: set[str] = set()
        self._missing: dict[str, _Missing] = {}
        self._patience = patience
        self._clock = clock

    def is_missing(self, topic: str) -> bool:
        """Tells whether the topic was found missing a moment ago; if not, it has to be asked for."""
        missing = self._missing.get(topic)
        return missing is not None and self._clock() - missing.asked < _FRESH

    def may_come(self, topic: str) -> bool:
        """Tells whether the topic is missing for so short a time that it may have been created just now."""
        missing = self._missing.get(topic)
        return missing is not None and self._clock() - missing.since < self._patience

    def is_news(self, topic: str) -> bool:
        """Tells whether nothing was ever told of the topic."""
        return topic not in self.there and topic not in self._missing

    def heed(self, answers: Answers) -> None:
        """Takes what the broker told."""
        now = self._clock()
        for topic, standing in answers.items():
            if standing is Standing.THERE:
                self.there.add(topic)
                self._missing.pop(topic, None)
            elif standing is Standing.MISSING:
                self.lose(topic, now)

    def lose(self, topic: str, asked: float = float("-inf")) -> None:
        """Takes that the topic is missing, or seems to be: then it is asked for before the next record."""
        self.there.discard(topic)
        if len(self._missing) >= _MOST:
            self._missing.clear()
        missing = self._missing.setdefault(topic, _Missing(self._clock(), asked))
        missing.asked = asked


def find(producer: Producer, topics: Collection[str], news: Collection[str]) -> Answers:
    """Asks the broker for topics; it creates those that it creates on first use.

    Takes milliseconds for each topic, about half a second longer where one is missing that is news, and a
    second where the broker does not answer. Afterwards ``producer`` takes a topic that exists for
    existing, whatever it remembered.

    Args:
        producer: Whom to ask through.
        topics: What to ask for.
        news: Those of them that are waited for, as they may be about to be created.
    """
    answers = _look(producer, topics)
    for pause in _PAUSES:
        coming = [topic for topic in news if answers[topic] is Standing.MISSING]
        if not coming:
            break
        time.sleep(pause)
        answers |= _look(producer, coming)
    return answers


def _look(producer: Producer, topics: Iterable[str]) -> Answers:
    answers = dict.fromkeys(topics, Standing.UNTOLD)
    with suppress(KafkaException):  # the broker does not answer, and would not for the next topic either
        for topic in answers:
            # What is no topic's name fails in the client already, and again when a record is sent to it.
            with suppress(RuntimeError, TypeError, ValueError):
                error = producer.list_topics(topic, timeout=_ASKING).topics[topic].error
                answers[topic] = _STANDINGS.get(error and error.code(), Standing.THERE)
    return answers
