"""A whole audit: a ledger on the one side, topics on the other."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outbox_sdk import OutboxError

from outbox_core.audit.audit import Audit
from outbox_core.audit.ledger import read_entries
from outbox_core.audit.result import Result
from outbox_core.audit.topic import SEQUENCE_HEADER, Isolation, read_topic

Progress = Callable[[int], object]
"""Takes how many more lines or messages have been read."""

_STEP = 1000


@dataclass(frozen=True, slots=True)
class Comparison:
    """What one audit has compared, and found.

    Attributes:
        topics: The topics that were read.
        result: What was found.
    """

    topics: tuple[str, ...]
    result: Result


def compare(
    ledger: Path,
    topics: Sequence[str],
    kafka: Mapping[str, Any],
    header: str = SEQUENCE_HEADER,
    progress: Progress = lambda _: None,
    *,
    isolation: Isolation = Isolation.READ_COMMITTED,
) -> list[Comparison]:
    """Compares a ledger with topics as they are now.

    Where the ledger names topics each of them is audited by itself. Where it does not all topics are audited
    as one, so no key may have records in more than one of them: there is no order between topics.

    Args:
        ledger: The file.
        topics: Which topics; none means those that the ledger names.
        kafka: librdkafka settings; ``bootstrap.servers`` at least.
        header: The header that carries a record's sequence.
        progress: Told now and then how far it is.
        isolation: As what kind of consumer to read the topics.

    Raises:
        OutboxError: The ledger cannot be read, or it does not say what was stashed to a topic.
        DriverError: A topic cannot be read.
    """
    count = _Steps(progress)
    audits = _read(ledger, count)
    wanted = tuple(dict.fromkeys(topics))
    if audits.keys() <= {None}:
        if not wanted:
            raise OutboxError(f"ledger {ledger} names no topic: say which topics it is about")
        plan = [(wanted, audits.get(None) or Audit())]
    else:
        wanted = wanted or tuple(sorted(topic for topic in audits if topic is not None))
        if absent := [topic for topic in wanted if topic not in audits]:
            raise OutboxError(f"ledger {ledger} has no record of topic '{absent[0]}'")
        plan = [((topic,), audits[topic]) for topic in wanted]
    for each, audit in plan:
        for topic in each:
            for message in read_topic(kafka, topic, header, isolation=isolation):
                audit.arrived(*message)
                count.one()
    count.rest()
    return [Comparison(each, audit.result()) for each, audit in plan]


def _read(ledger: Path, count: "_Steps") -> dict[str | None, Audit]:
    """Returns an audit for each topic that the ledger names, or one for ``None`` when it names none."""
    audits: dict[str | None, Audit] = {}
    for entry in read_entries(ledger):
        audit = audits.setdefault(entry.topic, Audit())
        try:
            audit.committed(entry.key, entry.sequence)
        except ValueError as error:
            raise OutboxError(f"ledger {ledger}: {error}") from error
        count.one()
    if len(audits) > 1 and None in audits:
        raise OutboxError(f"ledger {ledger} names a topic in some of its lines and none in others")
    return audits


class _Steps:
    """Tells progress in steps, as telling of each message would take longer than the message."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._untold = 0

    def one(self) -> None:
        self._untold += 1
        if self._untold == _STEP:
            self.rest()

    def rest(self) -> None:
        self._progress(self._untold)
        self._untold = 0
