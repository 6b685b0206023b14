"""What the page says before a verb is done, and after it: plain values, without I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from outbox_api.seams.outbox_view import MAX_COUNTED
from outbox_api.seams.pausing import subject_of
from outbox_core.operations import (
    Changed,
    GivenUp,
    LetterFilter,
    PauseChanged,
    Prepared,
    Raised,
    Receipt,
    TakeoverChanged,
    Verb,
)
from outbox_core.settings.logs import KeyNames
from outbox_core.status.model import Leader
from outbox_core.text.printable import printable
from outbox_core.text.wording import at_least, counted, date_clock_and_zone, duration

from outbox_console.view.dead_letters import Letter, short

MOST_TOPICS = 100
"""Topics that are offered to choose from."""
MOST = 1000
"""Dead letters that are changed at once."""
_MOST_NAMED = 20
"""Ids that are named in a sentence."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What an operator is asked before a verb is done."""

    question: str
    button: str  # what does it; empty if there is nothing to do
    about: tuple[str, ...] = ()  # what it will be done to, as seen now, in sentences
    letters: Sequence[Letter] = ()  # the dead letters that it will be done to
    fields: Mapping[str, str] = field(default_factory=dict)  # what is sent when it is confirmed
    again: str = ""  # asks for what is to be typed again; empty if nothing is
    lasts: bool = False  # whether it is asked for how long
    topics: Sequence[tuple[str, str, str]] | None = None
    """Topics to choose from, each as it is, as it prints, and how much of it waits; ``None`` if there is
    nothing to choose."""

    @classmethod
    def of_letters(cls, verb: Verb, letters: Sequence[Letter], gone: Sequence[int]) -> Confirmation:
        """Asks before dead letters are changed."""
        about = []
        if gone:
            about.append(f"Not {verb.about.status} any more, and left alone: {_ids(gone)}.")
        if not letters:
            nothing = f"No record is {verb.about.status} any more." if gone else "No record is chosen."
            return cls(f"{verb.about.label}: nothing to do", "", (*about, nothing))
        action = f"{verb.about.label} {counted(len(letters), 'record')}"
        ids = ",".join(str(each.id) for each in letters)
        return cls(f"{action}?", action, tuple(about), letters, {"ids": ids})

    @classmethod
    def of_matching(
        cls, verb: Verb, total: int, shown: Sequence[Letter], said: str, where: LetterFilter
    ) -> Confirmation:
        """Asks before all dead letters are changed that meet conditions.

        Args:
            verb: What will be done.
            total: How many there are.
            shown: The first of them.
            said: The conditions, for people; empty if all are meant.
            where: The conditions, as they will be sent.
        """
        which = f"All that are {verb.about.status}" + (f", and meet: {said}." if said else ".")
        if not total:
            return cls(f"{verb.about.label}: nothing to do", "", (f"{which} There is none.",))
        about = [which, f"Records that are {verb.about.status} from now on are left alone."]
        if total > len(shown):
            about.append(f"The first {len(shown)} of {total:,} are listed.")
        action = f"{verb.about.label} {counted(total, 'record')}"
        fields = {"where": json.dumps(where.texts()), "expected": str(total)}
        return cls(f"{action}?", action, tuple(about), shown, fields)

    @classmethod
    def of_cluster(cls, verb: Verb, cluster: int, leader: Leader | None) -> Confirmation:
        """Asks before a deliberate takeover begins or ends."""
        action = verb.about.label.format(cluster)
        return cls(f"{action}?", action, fields={"cluster": str(cluster), **_seen(leader)})

    @classmethod
    def of_fence(cls, leader: Leader | None) -> Confirmation:
        """Asks before the fence is raised."""
        verb = "has left" if leader and leader.left else "leads"
        now = f"{leader.name} {verb}, with token {leader.token}." if leader else "No leader is known."
        action = Verb.RAISE_FENCE.about.label
        return cls(f"{action}?", action, (now,), fields=_seen(leader))

    @classmethod
    def of_topics(cls, waiting: Mapping[str, int]) -> Confirmation:
        """Asks which topic is to be paused."""
        found = sorted(waiting.items(), key=lambda item: (-item[1], item[0]))[:MOST_TOPICS]
        topics = [(topic, printable(topic), f"{count:,}") for topic, count in found if topic]
        return cls("Pause which topic?", "", topics=topics)

    @classmethod
    def of_pause(cls, verb: Verb, topic: str, waiting: Mapping[str, int]) -> Confirmation:
        """Asks before a topic, or the whole outbox, is paused or resumed."""
        action, total = f"{verb.about.label} {short(subject_of(topic))}", sum(waiting.values())
        count = waiting.get(topic, 0) if topic else total
        waits = at_least(count, exact=total < MAX_COUNTED)
        about = [f"Records of it that wait now: {waits}."]
        if not count and verb is Verb.PAUSE:
            about.append("Perhaps none was ever written: check the name.")
        fields = {"topic": topic} if topic else {"whole": "1"}
        return cls(f"{action}?", action, tuple(about), fields=fields, lasts=verb is Verb.PAUSE)

    @classmethod
    def of_replay(cls, prepared: Prepared, names: KeyNames, fields: Mapping[str, str]) -> Confirmation:
        """Asks before kept records are replayed; tells what that would do."""
        told = tuple(prepared.told(names))
        if not prepared.kept.records and not prepared.resumed:
            return cls("Replay: nothing to do", "", told)
        action = "Go on" if prepared.resumed else f"Replay {counted(prepared.kept.records, 'record')}"
        return cls(f"{action}?", action, told, fields=fields)

    @classmethod
    def of_replay_to_end(cls, name: str) -> Confirmation:
        """Asks before a replay is given up."""
        return cls(f"Give up the replay {short(name)}?", Verb.GIVE_UP.about.label, fields={"replay": name})

    @classmethod
    def of_erasure(cls, key: str, tombstone: str, waiting: int) -> Confirmation:
        """Asks before a key is erased."""
        about = [f"The key is {short(key)}. {counted(waiting, 'record')} of it wait in the outbox, and stay."]
        if tombstone:
            about.append(f"A record of the key without a value is stashed for topic {tombstone}.")
        fields = {"key": key, "tombstone": tombstone}
        return cls("Erase the key?", "Erase", tuple(about), fields=fields, again="Type the key again.")


def _seen(leader: Leader | None) -> dict[str, str]:
    """Returns what makes the form do nothing once the fence was raised."""
    return {"seen": str(leader.token)} if leader else {}


def begun(name: str, prepared: Prepared | None) -> str:
    """Returns what is said once a replay runs; ``None`` if it is not known yet what it will do."""
    if prepared is None:
        return f"The replay {name} is being prepared. Replays, below, says when it has begun."
    does = "goes on" if prepared.resumed else "has begun"
    return f"The replay {name} {does}: {counted(prepared.kept.records, 'record')} to stash."


def said(done: Changed | Raised | TakeoverChanged | GivenUp | Receipt | PauseChanged) -> str:
    """Returns what came of a verb, in sentences."""
    note = f" Note: {done.unnoted}." if done.unnoted else ""
    if isinstance(done, GivenUp):
        of = f"{done.stashed:,} of {done.chosen:,} records"
        return f"The replay {done.name} is given up: {of} stashed.{note}"
    if isinstance(done, PauseChanged):
        return _pause(done) + note
    if isinstance(done, Receipt):
        return _receipt(done) + note
    if isinstance(done, Raised):
        fenced = f" {done.fenced} is fenced." if done.fenced else ""
        return f"The fence is raised: the token is {done.token} now.{fenced}{note}"
    if isinstance(done, TakeoverChanged):
        return _takeover(done) + note
    changed = (
        f"{counted(len(done.changed), 'record').capitalize()} {done.verb.about.done}: {_ids(done.changed)}."
        if done.changed
        else "Nothing was changed."
    )
    gone = f" Not {done.verb.about.status} any more, and left alone: {_ids(done.gone)}." if done.gone else ""
    status = done.verb.about.status
    fewer = f" {done.fewer:,} of those that were counted were not {status} any more." if done.fewer else ""
    return changed + gone + fewer + note


def _receipt(done: Receipt) -> str:
    gone = f"{counted(done.kept, 'kept record')}, {counted(done.dead_letters, 'dead letter')}"
    times = f"from {date_clock_and_zone(done.began)} to {date_clock_and_zone(done.ended)}"
    said = f"Erased key {done.digest}: {gone}, {done.journal} journal entries, {times}."
    if done.waiting:
        said += f" {counted(done.waiting, 'record')} of it wait: erase it again once they are delivered."
    if done.tombstone:
        said += f" A tombstone goes to topic {done.tombstone}: if it is kept, erase the key again afterwards."
    return said


def _pause(done: PauseChanged) -> str:
    subject = f"Topic {short(done.topic)}" if done.topic else "The whole outbox"
    if done.verb is Verb.RESUME:
        return (
            f"{subject} is resumed. It was paused for {duration(done.pause.lasted)}."
            if done.pause
            else f"{subject} was not paused."
        )
    assert done.pause is not None  # noqa: S101 - it is on
    until = f"until {date_clock_and_zone(done.pause.until)}" if done.pause.until else "until it is resumed"
    query = " A query of Spark reads this outbox, and ignores pauses." if done.query else ""
    return f"{subject} is paused {until}. “Paused” below shows when this is in effect.{query}"


def _takeover(done: TakeoverChanged) -> str:
    of = f"of cluster {done.cluster}"
    if done.verb is Verb.TAKE_OVER:
        what = f"The records {of} are taken over at once {'from now on' if done.changed else 'already'}."
    else:
        what = f"The takeover {of} has ended." if done.changed else f"There was no takeover {of}."
    return what if done.token is None else f"{what} The token is {done.token} now."


def _ids(ids: Sequence[int]) -> str:
    more = f" and {len(ids) - _MOST_NAMED:,} more" if len(ids) > _MOST_NAMED else ""
    return ", ".join(map(str, ids[:_MOST_NAMED])) + more
