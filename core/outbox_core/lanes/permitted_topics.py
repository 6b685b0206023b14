"""To which topics an outbox may publish, without I/O.

Whoever may insert into the outbox chooses a record's topic. So topics of outbox itself are never published
to, and a configuration can name those that are permitted.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from outbox_sdk import MarkedRecord

OWN_PATTERNS = ("*.neli", "outbox.checkpoints")
"""The default topics of elections and of checkpoints, of any outbox."""


@dataclass(frozen=True)
class PermittedTopics:
    """The topics to which records may be published.

    Attributes:
        patterns: Names, with ``*`` for any characters and ``?`` for one; one of them must match.
        own: Names of topics that outbox itself uses, to which nothing is ever published.
    """

    patterns: Sequence[str] = ("*",)
    own: Collection[str] = ()

    def refusal(self, topic: str) -> str:
        """Returns why nothing may be published to a topic; empty if it may."""
        if topic in self.own or any(fnmatchcase(topic, pattern) for pattern in OWN_PATTERNS):
            return f"the topic '{topic}' is one that outbox itself uses"
        if not any(fnmatchcase(topic, pattern) for pattern in self.patterns):
            return f"the topic '{topic}' is none of those that harvest.topics permits"
        return ""

    def checked(self, records: Sequence[MarkedRecord]) -> list[MarkedRecord]:
        """Returns the records, with a fault in each whose topic is not permitted: its key will be parked."""
        topics = {record.topic for record in records}
        refusals = {topic: refusal for topic in topics if (refusal := self.refusal(topic))}
        if not refusals:
            return list(records)
        return [
            record if record.fault or record.topic not in refusals
            else record._replace(fault=refusals[record.topic])
            for record in records
        ]  # fmt: skip
