"""What an operator does with dead letters."""

import logging
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from outbox_api.base.errors import OutboxError
from outbox_api.base.record import MarkedRecord
from outbox_api.portable.dead_letters import PortableDeadLetters
from outbox_api.seams.parking import DeadLetter, DeadLetterStatus, is_cut

from outbox_core.operations.journalled import Operator, journalled, operating
from outbox_core.operations.letter_filter import LetterFilter
from outbox_core.operations.verbs import Verb
from outbox_core.settings import HarvestSettings

log = logging.getLogger("outbox.operations")

AT_ONCE = 1000
"""Letters that one transaction changes, during which no lane marks."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What a verb has done to dead letters."""

    verb: Verb
    changed: tuple[int, ...]  # the ids of those that it changed, ascending
    gone: tuple[int, ...]
    """The ids of those that did not exist any more, or not in the required state, as asked for."""
    unnoted: str = ""  # why the journal lacks the outcome; empty if it has it
    fewer: int = 0  # how many of those that a filter meant when it was asked for had ceased to be there


@operating()
def reveal(settings: HarvestSettings, ids: Sequence[int], operator: Operator) -> list[DeadLetter]:
    """Returns letters with values and headers, ordered by id; those that are gone are left out.

    The journal notes it, as values may be confidential.
    """
    wanted = sorted(set(ids))
    with _open(settings, read_only=True) as dead:
        subject = _subject(settings, dead, wanted)
        with journalled(settings, Verb.REVEAL, subject, operator) as outcome:
            found = dead.find(ids=wanted)
            outcome.text = _counted("shown", len(found), len(wanted) - len(found))
    if outcome.unnoted:
        log.warning("%s", outcome.unnoted)
    return found


def letters(
    settings: HarvestSettings,
    status: DeadLetterStatus | None = None,
    keys: Sequence[str] = (),
    ids: Sequence[int] | None = None,
) -> list[DeadLetter]:
    """Returns dead letters without values and headers, and with the beginnings of keys, ordered by id."""
    with _open(settings, read_only=True) as dead:
        return dead.find(keys, status, ids=ids, whole=False)


def rows_now(settings: HarvestSettings, ids: Sequence[int]) -> list[MarkedRecord]:
    """Returns the rows of parked letters as the outbox has them by now, which somebody may have repaired."""
    with closing(settings.dialect.create().watch()) as view:
        return [row for each in ids for row in view.peek(each - 1, 1) if row.id == each]


def waiting(settings: HarvestSettings, letter: int) -> int:
    """Returns how many rows the outbox holds of a dead letter's key, a parked head included.

    May read the whole table. Returns 0 if the letter is gone.
    """
    with _open(settings, read_only=True) as dead:
        found = dead.find(ids=[letter], whole=False)
        if any(is_cut(each.record.key) for each in found):
            found = dead.find(ids=[letter])
        return sum(dead.waiting(each.record.key) for each in found)


@operating()
def change(
    settings: HarvestSettings, verb: Verb, ids: Sequence[int], operator: Operator, chosen_by: str = ""
) -> Changed:
    """Retries or skips parked letters, or redrives skipped ones; see :class:`Verb` for what that means.

    More than ``AT_ONCE`` are changed in several transactions, between which lanes go on.

    Args:
        settings: The outbox.
        verb: What is done.
        ids: To which letters.
        operator: By whom, and why.
        chosen_by: The filter that has chosen them, for the journal; empty if somebody has named them.
    """
    wanted = sorted(set(ids))
    if not wanted:
        return Changed(verb, (), ())
    with _open(settings, read_only=False) as dead:
        subject = _subject(settings, dead, wanted, chosen_by)
        with journalled(settings, verb, subject, operator, at_once=len(wanted) <= AT_ONCE) as outcome:
            changed = _act(dead, verb, wanted)
            gone = tuple(sorted({*wanted} - {*changed}))
            outcome.text = _counted("changed", len(changed), len(gone))
    return Changed(verb, tuple(changed), gone, outcome.unnoted)


def change_chosen(
    settings: HarvestSettings, verb: Verb, chosen: LetterFilter, expected: int, operator: Operator
) -> Changed:
    """Does it to the letters that a filter means now.

    Args:
        settings: The outbox.
        verb: What is done.
        chosen: To which letters; best as :meth:`LetterFilter.pinned` when they were counted.
        expected: How many there were then.
        operator: By whom, and why.

    Raises:
        OutboxError: There are more by now; nothing is done.
    """
    found = chosen.chosen(letters(settings, verb.about.status, chosen.keys), settings.key_names)
    if len(found) > expected:
        raise OutboxError(
            f"nothing was done: {len(found):,} records match by now, instead of {expected:,}; look again"
        )
    ids = [each.record.id for each in found]
    done = change(settings, verb, ids, operator, chosen.named(settings.key_names) or "all")
    return replace(done, fewer=expected - len(found))


def _act(dead: PortableDeadLetters, verb: Verb, ids: Sequence[int]) -> list[int]:
    acts = {Verb.RETRY: dead.retry, Verb.SKIP: dead.skip, Verb.REDRIVE: dead.redrive}
    parts = (ids[begin : begin + AT_ONCE] for begin in range(0, len(ids), AT_ONCE))
    return [changed for part in parts for changed in acts[verb](part)]


def _subject(
    settings: HarvestSettings, dead: PortableDeadLetters, ids: Sequence[int], chosen_by: str = ""
) -> str:
    """Returns the keys of dead letters as log lines name them, with the ids of their records."""
    found = dead.find(ids=ids, whole=False)
    names = {each.record.id: settings.key_names.of_listed(each.record.key) for each in found}
    named = [f"key {names[each]} (record {each})" if names.get(each) else f"record {each}" for each in ids]
    chosen = f" ({chosen_by})" if chosen_by else ""
    return ", ".join(named if len(named) == 1 else [f"{len(named)} records{chosen}", *named])


def _counted(done: str, count: int, gone: int) -> str:
    return f"{count} {done}, {gone} gone" if gone else f"{count} {done}"


def _open(settings: HarvestSettings, *, read_only: bool) -> "closing[PortableDeadLetters]":
    return closing(settings.dialect.create().dead_letters(read_only=read_only))
