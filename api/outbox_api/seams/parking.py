"""Parking: what happens to a key whose earliest record cannot be delivered.

The failed record, the *head*, is copied to the dead letters with the error and the number of attempts. Its
row and the key's other rows, the *tail*, stay in the outbox, and marks leave them out. Thus the key keeps
its order under every leader, and all other keys flow. An operator ends it::

    parked --retry--> the head is marked again, and the tail behind it
    parked --skip--> skipped: the head's row is deleted, and the tail is marked
                        |
                        +--redrive--> stashed again, behind everything the key has by then
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from outbox_api.base.record import MarkedRecord


class FailureClass(StrEnum):
    """Why a record could not be delivered, in a word; programs may rely on these names."""

    TOO_LARGE = "too-large"
    UNKNOWN_TOPIC = "unknown-topic"
    NOT_PERMITTED = "not-permitted"
    """``harvest.topics`` does not permit its topic, or outbox or Kafka itself uses it."""
    AUTHORIZATION = "authorization"
    TRANSFORM = "transform"
    OTHER = "other"


_WORDS = (
    ("transform '", FailureClass.TRANSFORM),
    ("after its transforms, ", FailureClass.TRANSFORM),
    (" none of those that harvest.topics permits", FailureClass.NOT_PERMITTED),
    (" itself uses", FailureClass.NOT_PERMITTED),
    (" bytes, more than ", FailureClass.TOO_LARGE),
    ("_TOO_LARGE)", FailureClass.TOO_LARGE),
    ("_AUTHORIZATION_FAILED)", FailureClass.AUTHORIZATION),
    ("UNKNOWN_TOPIC", FailureClass.UNKNOWN_TOPIC),
    ("(TOPIC_EXCEPTION)", FailureClass.UNKNOWN_TOPIC),
)
"""What reasons contain, and what that means; the first counts. Kafka's are the names of its errors."""


def failure_class(reason: str) -> FailureClass:
    """Returns the class of a failure, by the words of its reason, which is all that a dead letter has."""
    return next((found for words, found in _WORDS if words in reason), FailureClass.OTHER)


LONGEST_KEY = 1_000
"""Characters of a key that lists of dead letters have; a longer key is cut there."""


def listed_key(key: str) -> str:
    """Returns a key as lists have it: of a longer one than ``LONGEST_KEY`` one character more."""
    return key[: LONGEST_KEY + 1]


def listed(record: MarkedRecord) -> MarkedRecord:
    """Returns a record, read without value and headers, as lists have it: its topic is cut as its key is."""
    return record._replace(topic=listed_key(record.topic), key=listed_key(record.key))


def is_cut(key: str) -> bool:
    """Returns whether a key of a list is the beginning of a longer one."""
    return len(key) > LONGEST_KEY


@dataclass(frozen=True, slots=True)
class Poison:
    """A record that could not be delivered, and whose key is to be parked.

    Attributes:
        id: The record's id.
        reason: The last error, free of secrets.
        attempts: How often this leader has tried to deliver it.
    """

    id: int
    reason: str
    attempts: int


@dataclass(frozen=True, slots=True)
class Parked:
    """How much is parked.

    Attributes:
        keys: Keys that are parked now.
        oldest: For how many seconds the first of them has been parked, by the database's clock; ``None`` for
            none.
    """

    keys: int
    oldest: float | None


class DeadLetterStatus(StrEnum):
    """The state of a dead letter."""

    PARKED = "parked"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be delivered.

    Attributes:
        record: The record as it was when it failed, with its id in the outbox; or with a negative id if the
            outbox has given out the record's id anew.
        reason: The last error.
        attempts: How often its delivery was tried.
        since: When it was parked, or skipped (database clock).
        age: Seconds since then by the database's clock.
        status: Whether its key is parked, or it was skipped.
    """

    record: MarkedRecord
    reason: str
    attempts: int
    since: datetime
    age: float
    status: DeadLetterStatus
