"""Keeps records back whose topic is being asked for, so that a missing one costs the others nothing.

Left to the client, a record to a missing topic fails after ``topic.metadata.propagation.max.ms`` (5 s), and
takes the place of another among those in flight for as long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from confluent_kafka import KafkaError
from outbox_sdk import MarkedRecord

from outbox_kafka.aside import Aside
from outbox_kafka.known_topics import MISSING, Answers, Find, KnownTopics, Standing

_LONGEST: Final = 2.0
"""Seconds after which a record that was kept is not sent any more. Its lane has stood still, and may have
lost its place: what it sends late could arrive behind what its successor has sent.
"""
_NO_NAME: Final = KafkaError(KafkaError.TOPIC_EXCEPTION)
_LATE: Final = KafkaError(KafkaError._TIMED_OUT)  # noqa: SLF001 - librdkafka's spelling


class TopicGate:
    """Decides for records whose topic is not known to exist: kept, let through, or refused.

    Attributes:
        there: The topics whose records need no gate.
    """

    def __init__(
        self,
        known: KnownTopics,
        find: Find,
        aside: Aside,
        let_through: Callable[[Sequence[MarkedRecord]], None],
        refuse: Callable[[Sequence[MarkedRecord], KafkaError, bool], None],
    ) -> None:
        """Makes a gate with nothing behind it.

        Args:
            known: What is known of topics.
            find: Asks the broker, on another thread.
            aside: That thread.
            let_through: Takes the records of a topic in the order they came, once it exists, or the broker
                does not tell.
            refuse: Takes records that are not to be sent, why, and whether sending them later may help.
        """
        self.there = known.there
        self._known = known
        self._find = find
        self._aside = aside
        self._let_through = let_through
        self._refuse = refuse
        self._kept: dict[str, list[MarkedRecord]] = {}
        self._since: dict[str, float] = {}
        self._asked: set[str] = set()

    def __bool__(self) -> bool:
        """Tells whether any record is kept."""
        return bool(self._kept)

    def take(self, record: MarkedRecord) -> None:
        """Takes a record whose topic is not known to exist."""
        topic = record.topic
        if topic in self._kept:
            self._kept[topic].append(record)
        elif self._known.is_missing(topic):
            self._miss([record])
        else:
            self._kept[topic], self._since[topic] = [record], time.monotonic()

    def ask(self) -> None:
        """Has the topics asked for whose records are kept, unless it is waiting for an answer."""
        if not self._asked and self._kept:
            self._asked = set(self._kept)
            news = {topic for topic in self._asked if self._known.is_news(topic)}
            self._aside.ask(partial(self._find, self._asked, news), self._heed)

    def lose(self, record: MarkedRecord) -> None:
        """Takes a record that was let through, and of which the client says that its topic is missing."""
        self._known.lose(record.topic)
        self._miss([record])

    def _miss(self, records: Sequence[MarkedRecord]) -> None:
        self._refuse(records, MISSING, self._known.may_come(records[0].topic))

    def _heed(self, answers: Answers) -> None:
        self._known.heed(answers)
        self._asked = set()
        now = time.monotonic()
        for topic, standing in answers.items():
            records, late = self._kept.pop(topic), now - self._since.pop(topic) > _LONGEST
            if standing is Standing.MISSING:
                self._miss(records)
            elif standing is Standing.NO_NAME:
                self._refuse(records, _NO_NAME, False)
            elif late:
                self._refuse(records, _LATE, True)
            else:
                self._let_through(records)
        self.ask()
