"""Erases what an outbox still has of a key, where a person asks to be forgotten."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from hashlib import sha256

from outbox_api.base.bounds import is_topic
from outbox_api.base.errors import ConfigError, OutboxError
from outbox_api.base.record import Record
from outbox_api.portable.erasing import Live, PortableErasing
from outbox_api.portable.sources import JOURNAL_TEXTS
from outbox_api.seams.parking import LONGEST_KEY, is_cut

from outbox_core.operations.journalled import Operator, journalled, operating
from outbox_core.operations.reason import check_text
from outbox_core.operations.verbs import Verb
from outbox_core.settings import HarvestSettings

STEP = 1000
"""How many records a transaction erases."""

DIGITS = 16
"""Of the digest of a key."""

SHORTEST_WORD = 4
"""Characters of a key that the journal's texts hardly contain by chance."""


class KeyParked(OutboxError):  # noqa: N818 - reads as what is the matter with the key
    """The key has a record that is parked, which is still to be delivered."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was erased of a key; holds nothing of the key itself."""

    digest: str  # of the key
    began: datetime  # database clock
    ended: datetime
    kept: int  # kept records that were deleted
    dead_letters: int  # skipped dead letters that were deleted
    journal: int  # entries of the journal whose texts have the digest instead of the key now
    waiting: int  # rows of the outbox that are still to be delivered, without the tombstone
    tombstone: str = ""  # the topic for which one was stashed; empty for none
    unnoted: str = ""  # why the journal lacks the outcome; empty if it has it


def digest(key: str) -> str:
    """Returns what stands for a key once it is erased."""
    return f"sha256:{sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:DIGITS]}"


def check_erasure(key: str, tombstone: str | None = None) -> None:
    """Raises ``ConfigError`` if that can be no key to erase, or no topic for a tombstone."""
    if not key:
        raise ConfigError("an empty key is the one of all records without a key")
    check_text(key)
    if tombstone is not None and not is_topic(tombstone):
        raise ConfigError(f"'{tombstone:.300}' is not the name of a topic")


@operating()
def look(settings: HarvestSettings, key: str) -> Live:
    """Returns what is to be delivered of a key; raises as :func:`erase` where that would be refused."""
    check_erasure(key)
    with closing(settings.dialect.create().erasing()) as erasing:
        return _live(erasing, key)


@operating()
def erase(
    settings: HarvestSettings,
    key: str,
    operator: Operator,
    tombstone: str = "",
    advance: Callable[[int], object] = lambda _records: None,
) -> Receipt:
    """Erases a key from kept records, skipped dead letters and the journal's texts. Idempotent.

    Rows that wait in the outbox are not touched. What is erased is in small transactions, so one that ends
    early has erased some: do it again.

    Args:
        settings: Those of the outbox.
        key: The key, whole.
        operator: Who does it; the journal notes the reason without the key.
        tombstone: The topic for which a record without a value is stashed afterwards; empty for none.
        advance: Is told how many records were erased, as it goes on.

    Raises:
        KeyParked: A record of the key is parked; nothing was done.
        ConfigError: As :func:`check_erasure`.
    """
    check_erasure(key, tombstone or None)
    name, without = digest(key), _eraser(key)
    who = replace(operator, reason=without(operator.reason))
    with closing(settings.dialect.create().erasing()) as erasing:
        live, began = _live(erasing, key), erasing.now()
        with journalled(settings, Verb.ERASE, f"key {name}", who) as outcome:
            kept = _sum(erasing.erase_kept(key, STEP), advance)
            letters = _sum(iter(partial(erasing.erase_skipped, key, STEP), 0), advance)
            entries = sum(erasing.erase_quotes(without))
            waiting = max(live.waiting, erasing.live(key).waiting)  # a replay may have stashed meanwhile
            if tombstone:
                erasing.stash(Record(tombstone, key, None))
            left = f", {waiting} to be delivered" if waiting else ""
            outcome.text = f"{kept} kept records, {letters} dead letters, {entries} journal entries{left}"
        ended = erasing.now()
    return Receipt(name, began, ended, kept, letters, entries, waiting, tombstone, outcome.unnoted)


def _sum(steps: Iterator[int], advance: Callable[[int], object]) -> int:
    total = 0
    for done in steps:
        total += done
        advance(done)
    return total


def _live(erasing: PortableErasing, key: str) -> Live:
    live = erasing.live(key)
    if live.parked:
        raise KeyParked(
            f"nothing was erased: {live.parked} records of this key are parked, and are to be delivered; "
            "first free the key with 'outbox parked retry', or give them up with 'outbox parked skip'"
        )
    return live


def _eraser(key: str) -> Callable[[str], str]:
    """Returns what replaces a key in texts by its digest: where it is quoted, and where it is a word."""
    cut = f"{key[:LONGEST_KEY]!r}{'…' if is_cut(key) else ''}"
    quotes = [cut, repr(key), f'"{key}"']
    spellings = [re.escape(each) for each in quotes]
    if len(key) >= SHORTEST_WORD:
        spellings.append(rf"(?<!\w){re.escape(key)}(?!\w)")
    pattern, name = re.compile("|".join(spellings)), digest(key)
    return lambda text: pattern.sub(name, _without_end(text, [*quotes, key], name))


def _without_end(text: str, spellings: Sequence[str], name: str) -> str:
    """Replaces the beginning of a key with which a text ends, where the journal had no room for the rest."""
    if len(text.encode()) <= JOURNAL_TEXTS["subject"] - len("\U0010ffff".encode()):
        return text
    for spelling in spellings:
        for length in range(min(len(spelling), len(text)), SHORTEST_WORD, -1):
            if text.endswith(spelling[:length]):
                return text[:-length] + name
    return text
