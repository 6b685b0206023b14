"""Compares a ledger with topics."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outbox_api import OutboxError

from outbox_audit.audit import Audit
from outbox_audit.ledger import read_entries
from outbox_audit.result import Result
from outbox_audit.topic import SEQUENCE_HEADER, Isolation, read_topic

Progress = Callable[[int], object]
"""Receives how many more lines or messages have been read."""

_STEP_SIZE = 1000


@dataclass(frozen=True, slots=True)
class Comparison:
    """One audit: what was read, and what was found.

    Attributes:
        topics: The topics that were read.
        result: What was found.
    """

    topics: tuple[str, ...]
    result: Result


def compare(
    ledger: Path | str,
    topics: Sequence[str],
    kafka: Mapping[str, Any],
    header: str = SEQUENCE_HEADER,
    progress: Progress = lambda _: None,
    *,
    isolation: Isolation = Isolation.READ_COMMITTED,
) -> list[Comparison]:
    """Compares a ledger with topics as they are now.

    If the ledger names topics, each of them is audited by itself. If it does not, all topics are audited as
    one. Then no key may have records in more than one of them, because there is no order between topics.

    Args:
        ledger: The file.
        topics: The topics; empty for those that the ledger names.
        kafka: librdkafka settings; ``bootstrap.servers`` at least.
        header: The header that carries a record's sequence.
        progress: Is called now and then.
        isolation: The isolation level of the consumer that reads the topics.

    Raises:
        OutboxError: The ledger cannot be read, or has no record of a topic.
        DriverError: A topic cannot be read.
    """
    counter = _ProgressCounter(progress)
    audits = _read_ledger(ledger, counter)
    plan = [(each, audits.get(name) or Audit()) for each, name in plan_audits(ledger, audits, topics)]
    for each, audit in plan:
        for topic in each:
            for message in read_topic(kafka, topic, header, isolation=isolation):
                audit.arrived(*message)
                counter.add_one()
    counter.flush()
    return [Comparison(each, audit.result()) for each, audit in plan]


def plan_audits(
    ledger: Path | str, named: Collection[str | None], topics: Sequence[str]
) -> list[tuple[tuple[str, ...], str | None]]:
    """Returns which topics are audited together, and by which name the ledger calls them.

    Args:
        ledger: The ledger, for errors.
        named: The topics that the ledger names; ``None`` for records whose topic it does not name.
        topics: The topics that are wanted; empty for those that the ledger names.

    Raises:
        OutboxError: No topic is named, one in some lines only, or the ledger has no record of one.
    """
    wanted = tuple(dict.fromkeys(topics))
    if set(named) <= {None}:
        if not wanted:
            raise OutboxError(f"ledger {ledger} names no topic: name the topics to read")
        return [(wanted, None)]
    if None in named:
        raise OutboxError(f"ledger {ledger} names a topic in some of its lines and none in others")
    wanted = wanted or tuple(sorted(topic for topic in named if topic is not None))
    if absent := [topic for topic in wanted if topic not in named]:
        raise OutboxError(f"ledger {ledger} has no record of topic '{absent[0]}'")
    return [((topic,), topic) for topic in wanted]


def _read_ledger(ledger: Path | str, counter: "_ProgressCounter") -> dict[str | None, Audit]:
    """Returns an audit for each topic that the ledger names, or one for ``None`` of records without."""
    audits: dict[str | None, Audit] = {}
    for entry in read_entries(Path(ledger)):
        audit = audits.setdefault(entry.topic, Audit())
        try:
            audit.committed(entry.key, entry.sequence)
        except ValueError as error:
            raise OutboxError(f"ledger {ledger}: {error}") from error
        counter.add_one()
    return audits


class _ProgressCounter:
    """Reports progress in steps, because a report for each message would take longer than the message."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._pending = 0

    def add_one(self) -> None:
        self._pending += 1
        if self._pending == _STEP_SIZE:
            self.flush()

    def flush(self) -> None:
        self._progress(self._pending)
        self._pending = 0
