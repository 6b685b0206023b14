"""What the page shows of dead letters and of the journal, as plain values: without I/O."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from outbox_api.base.record import MarkedRecord
from outbox_api.seams.journal import Entry
from outbox_api.seams.parking import LONGEST_KEY, DeadLetter, is_cut
from outbox_core.settings.logs import KeyNames
from outbox_core.text.printable import printable
from outbox_core.text.wording import coarse_duration, counted

LONGEST = 500
"""Characters of a key, a topic or a reason that are shown."""
MOST_SHOWN = 4096
"""Characters or bytes of a value that are shown."""
MOST_HEADERS = 100
"""Headers of a record that are shown."""
MOST_OF_HEADER = 1024
"""Characters or bytes of the value of a header that are shown."""
MOST_LETTERS = 50
"""Dead letters that a list shows."""
LONG = 80
"""Characters from which on a text of the journal is folded."""


def short(text: str) -> str:
    """Returns the beginning of a text that may be of any length, as it prints."""
    cut = f"… ({len(text):,} characters)" if len(text) > LONGEST else ""
    return printable(text[:LONGEST]) + cut


def sendable(text: str) -> str:
    """Returns a text as it is; empty if it holds half of a character, which no address and no form can."""
    return text if text.isascii() or text.encode(errors="ignore").decode() == text else ""


@dataclass(frozen=True, slots=True)
class Letter:
    """What is shown of a dead letter in lists."""

    id: int
    key: str
    in_logs: str
    """What log lines call the key; empty if that is the key itself, or if the list has only the beginning of
    the key."""
    topic: str
    attempts: str
    age: str
    since: datetime
    reason: str
    status: str
    reused: bool  # whether the outbox has given out the record's id anew
    partition: int | None
    timestamp_ms: int | None
    fault: str


def letter(found: DeadLetter, names: KeyNames) -> Letter:
    """Returns what is shown of a dead letter in lists."""
    record = found.record
    return Letter(
        id=record.id,
        key=shown_key(record.key),
        in_logs=names.of_listed(record.key) if names.hashed else "",
        topic=short(record.topic),
        attempts=f"{found.attempts:,}",
        age=coarse_duration(found.age),
        since=found.since,
        reason=short(found.reason),
        status=str(found.status),
        reused=record.id < 0,
        partition=record.partition,
        timestamp_ms=record.timestamp_ms,
        fault="" if record.fault in {None, found.reason} else short(str(record.fault)),
    )


def shown_key(key: str) -> str:
    """Returns the beginning of a key; how long it is, lists do not know of every key."""
    return (
        f"{printable(key[:LONGEST])}… (more than {LONGEST_KEY:,} characters)" if is_cut(key) else short(key)
    )


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of dead letters."""

    total: int
    letters: Sequence[Letter]


def listed(found: Sequence[DeadLetter], names: KeyNames) -> Listed:
    """Returns what is shown of dead letters: ``MOST_LETTERS`` at most."""
    return Listed(len(found), [letter(each, names) for each in found[:MOST_LETTERS]])


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a record or of a header, cut where it is long."""

    size: str  # how long it is, with its unit
    text: str  # as text; what is no UTF-8 is replaced
    hex: str = ""  # as hexadecimal digits; empty where it is text
    base64: str = ""  # in base64; empty where it is text
    cut: bool = False  # whether there is more than is shown


def value(found: str | bytes | None, most: int = MOST_SHOWN) -> Value | None:
    """Returns what is shown of a value, ``most`` characters or bytes of it; ``None`` if there is none."""
    if found is None:
        return None
    cut, part = len(found) > most, found[:most]
    if isinstance(part, str):
        return Value(counted(len(found), "character"), _lines(part), cut=cut)
    text = _lines(part.decode("utf-8", "replace"))
    return Value(counted(len(found), "byte"), text, part.hex(" "), b64encode(part).decode("ascii"), cut)


@dataclass(frozen=True, slots=True)
class Header:
    """A header of a record."""

    name: str
    value: Value | None


def headers(found: MarkedRecord) -> Sequence[Header]:
    """Returns what is shown of the headers of a record: ``MOST_HEADERS`` at most."""
    return [
        Header(short(name), value(content, MOST_OF_HEADER)) for name, content in found.headers[:MOST_HEADERS]
    ]


@dataclass(frozen=True, slots=True)
class Noted:
    """An entry of the journal."""

    id: str
    at: datetime
    operator: str
    via: str
    verb: str
    short: str  # the subject, cut where it is long
    rest: str  # the whole subject where it was cut; empty otherwise
    reason: str
    outcome: str


def noted(entry: Entry) -> Noted:
    """Returns what is shown of an entry of the journal."""
    action = entry.action
    subject = printable(action.subject)
    is_long = len(subject) > LONG
    return Noted(
        id=str(entry.id),
        at=entry.at,
        operator=printable(action.operator),
        via=printable(action.via),
        verb=printable(action.verb),
        short=f"{subject[:LONG]}…" if is_long else subject,
        rest=subject if is_long else "",
        reason=printable(action.reason),
        outcome=printable(entry.outcome or ""),
    )


def _lines(text: str) -> str:
    return "\n".join(printable(line) for line in text.split("\n"))
