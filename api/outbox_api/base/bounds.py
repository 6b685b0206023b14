"""What a harvester never delivers, and the words with which it parks it; a stasher may refuse it before."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from outbox_api.base.record import MarkedRecord, Record

NO_TOPIC = "a topic has 1 to 249 letters from a to z, digits, '.', '_' and '-', and is neither '.' nor '..'"
"""Why Kafka has no topic of a name."""

_TOPIC = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}")

MAX_TOPIC_BYTES = 1000
"""A row with a longer topic is not read; Kafka takes 249."""

MAX_KEY_BYTES = 65_536
"""A row with a longer key is not read: lanes hold the keys of failing records in memory."""

OWN_PATTERNS = ("*.neli", "outbox.checkpoints")
"""The default topics of elections and of checkpoints, of any outbox."""
_OF_KAFKA = ("__consumer_offsets", "__transaction_state", "__cluster_metadata", "__share_group_state")

MESSAGE_TOO_LARGE = (
    "Broker: Message size too large (MSG_SIZE_TOO_LARGE); make the record smaller, or raise "
    "message.max.bytes in the Kafka settings and max.message.bytes of the topic"
)
"""Why Kafka takes no record of so many bytes."""

_OVERHEAD = 36
"""Bytes that Kafka's client counts of each message besides its key, value and headers."""


def is_topic(name: str) -> bool:
    """Returns whether Kafka lets a topic have a name."""
    return _TOPIC.fullmatch(name) is not None


def too_long(topic: int, key: int) -> str | None:
    """Returns why a row is not read whose topic or key have so many bytes; ``None`` if it can be."""
    for what, size, most in (("topic", topic, MAX_TOPIC_BYTES), ("key", key, MAX_KEY_BYTES)):
        if size > most:
            return f"the row's {what} has {size:,} bytes, more than {most:,}; shorten it, or skip the row"
    return None


def too_large(size: int, limit: int | None = None) -> str:
    """Returns why a row of ``size`` bytes is not read; ``limit`` is how much may be read, if known."""
    permitted = f" ({limit:,})" if limit else ""
    cure = "raise it, or skip the row"
    return f"the row has {size:,} bytes, more than limits.maxLaneBytes permits{permitted}; {cure}"


def is_unread(fault: str) -> bool:
    """Returns whether a fault is one of those after which a row is never read, as it has too many bytes."""
    return fault.startswith("the row") and " bytes, more than " in fault


def message_bytes(record: Record) -> int:
    """Returns the size of a record's message as Kafka's client compares it with ``message.max.bytes``.

    That is before compression, so for most records it is more than what the broker stores.
    """
    size = _OVERHEAD + _bytes(record.key) + _bytes(record.value)
    for name, value in record.headers:
        lengths = _bytes(name), _bytes(value)
        size += sum(lengths) + sum(map(_varint_bytes, lengths))
    return size


def matches(text: str, pattern: str) -> bool:
    """Returns whether a text matches a pattern, in which ``*`` is any characters, and ``?`` is one."""
    return fnmatchcase(text, pattern.replace("[", "[[]"))


@dataclass(frozen=True)
class PermittedTopics:
    """The topics to which records may be published: whoever inserts into the outbox chooses a record's topic.

    Attributes:
        patterns: Names, with ``*`` for any characters and ``?`` for one; one of them must match.
        own: Names of topics that outbox itself uses, to which nothing is ever published.
    """

    patterns: Sequence[str] = ("*",)
    own: Collection[str] = ()

    def refusal(self, topic: str) -> str:
        """Returns why nothing may be published to a topic; empty if it may."""
        if topic in self.own or any(matches(topic, pattern) for pattern in OWN_PATTERNS):
            return f"the topic '{topic}' is one that outbox itself uses"
        if topic in _OF_KAFKA:
            return f"the topic '{topic}' is one that Kafka itself uses"
        if not any(matches(topic, pattern) for pattern in self.patterns):
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


@dataclass(frozen=True)
class Bounds:
    """What a harvester will deliver, as far as it is known; a harvester's settings have it as ``bounds``.

    Attributes:
        max_bytes: The harvester's ``message.max.bytes``; ``None`` if it is not known.
        topics: The topics that the harvester permits.
    """

    max_bytes: int | None = None
    topics: PermittedTopics = field(default_factory=PermittedTopics)

    def refusal(self, record: Record) -> str:
        """Returns why the harvester would park a record; empty if it would not."""
        if self.max_bytes is not None and message_bytes(record) > self.max_bytes:
            return MESSAGE_TOO_LARGE
        return self.topics.refusal(record.topic)


def _bytes(text: str | bytes | None) -> int:
    return len(text.encode() if isinstance(text, str) else text or b"")


def _varint_bytes(number: int) -> int:
    return (number.bit_length() + 7) // 7  # seven bits a byte, of which the sign is one
