"""What is read of a transactional id: the last attempt, and which of its records are in the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from outbox_api import Attempt, Found, MarkedRecord

from .log import Content, Publication, content_of
from .requests import Reply

if TYPE_CHECKING:
    from .broker import Broker


class Attempts:
    """The attempts of one transactional id.

    Attributes:
        attempts: Place → the transactions that have written a checkpoint there, whatever became of them.
    """

    def __init__(self, broker: Broker) -> None:
        self.attempts: dict[str, list[Publication]] = {}
        self._broker = broker

    def last(self, location: str) -> Publication | None:
        """Returns the last attempt at a place."""
        attempts = self.attempts.get(location)
        return attempts[-1] if attempts else None

    def attempt(self, location: str, reply: Reply) -> None:
        """Answers with the last attempt at a place, or ``None``."""
        last = self.last(location)
        reply(Attempt(last.checkpoint, last.trace) if last is not None else None)

    def find(self, records: Sequence[MarkedRecord], trace: str, reply: Reply) -> None:
        """Answers which records of an attempt are committed, and of which the log does not tell."""
        reply(self.found(records, trace))

    def found(self, records: Sequence[MarkedRecord], trace: str) -> Found:
        """Compares records with what an attempt has committed, one by one."""
        broker = self._broker
        left = self.committed(trace)
        seen, undecided = [], []
        for place, record in enumerate(records):
            content = content_of(record)
            if broker.blind and broker.chance.random() < broker.blind:
                undecided.append(record.id)
            elif left[content]:
                left[content] -= 1
                seen.append(place)
        published = self.published(records, self._shown(records, seen))
        published = [record for record in published if record not in undecided]
        if records and not undecided:
            return Found(published)
        return Found(published, undecided, broker.log.has_checkpoint(trace), "the log does not tell")

    def published(self, records: Sequence[MarkedRecord], seen: Sequence[int]) -> list[int]:
        """Returns the ids of the records that are in the log, by the places of those that were seen there.

        A record is there, too, if a later one of its key and partition is: it was replaced.
        """
        last = {(records[place].key, records[place].partition): place for place in seen}
        return [
            record.id for place, record in enumerate(records)
            if place <= last.get((record.key, record.partition), -1)
        ]  # fmt: skip

    def committed(self, trace: str) -> Counter[Content]:
        """Returns what is in the log of an attempt."""
        return self._broker.log.committed(trace)

    def _shown(self, records: Sequence[MarkedRecord], seen: Sequence[int]) -> list[int]:
        """Returns what is still in the log: some that another of their key follows there were replaced."""
        broker = self._broker
        if not broker.replaced:
            return list(seen)
        last = {(records[place].key, records[place].partition): place for place in seen}
        return [
            place for place in seen
            if place in last.values() or broker.chance.random() >= broker.replaced
        ]  # fmt: skip
