"""What the page says before a verb is done, and after it: plain values, without I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from outbox_core.operations import Changed, GivenUp, Prepared, Raised, Receipt, TakeoverChanged, Verb
from outbox_core.settings.logs import KeyNames
from outbox_core.status.model import Leader
from outbox_core.text.wording import counted, date_clock_and_zone

from outbox_console.view.dead_letters import Letter, short

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

    @classmethod
    def of_letters(cls, verb: Verb, letters: Sequence[Letter], gone: Sequence[int]) -> Confirmation:
        """Asks before dead letters are changed."""
        about = []
        if gone:
            about.append(f"Not {verb.about.status} any more, and left alone: {_ids(gone)}.")
        if len(letters) > MOST:
            about.append(f"These are the first {MOST:,} of {len(letters):,}; do it again for the others.")
            letters = letters[:MOST]
        if not letters:
            nothing = f"No record is {verb.about.status} any more." if gone else "No record is chosen."
            return cls(f"{verb.about.label}: nothing to do", "", (*about, nothing))
        action = f"{verb.about.label} {counted(len(letters), 'record')}"
        ids = ",".join(str(each.id) for each in letters)
        return cls(f"{action}?", action, tuple(about), letters, {"ids": ids})

    @classmethod
    def of_cluster(cls, verb: Verb, cluster: int, leader: Leader | None) -> Confirmation:
        """Asks before a deliberate takeover begins or ends."""
        action = verb.about.label.format(cluster)
        return cls(f"{action}?", action, fields={"cluster": str(cluster), **_seen(leader)})

    @classmethod
    def of_fence(cls, leader: Leader | None) -> Confirmation:
        """Asks before the fence is raised."""
        now = f"{leader.name} leads, with token {leader.token}." if leader else "No leader is known."
        action = Verb.RAISE_FENCE.about.label
        return cls(f"{action}?", action, (now,), fields=_seen(leader))

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


def said(done: Changed | Raised | TakeoverChanged | GivenUp | Receipt) -> str:
    """Returns what came of a verb, in sentences."""
    note = f" Note: {done.unnoted}." if done.unnoted else ""
    if isinstance(done, GivenUp):
        of = f"{done.stashed:,} of {done.chosen:,} records"
        return f"The replay {done.name} is given up: {of} stashed.{note}"
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
    return changed + gone + note


def _receipt(done: Receipt) -> str:
    gone = f"{counted(done.kept, 'kept record')}, {counted(done.dead_letters, 'dead letter')}"
    times = f"from {date_clock_and_zone(done.began)} to {date_clock_and_zone(done.ended)}"
    said = f"Erased key {done.digest}: {gone}, {done.journal} journal entries, {times}."
    if done.waiting:
        said += f" {counted(done.waiting, 'record')} of it wait: erase it again once they are delivered."
    if done.tombstone:
        said += f" A tombstone goes to topic {done.tombstone}: if it is kept, erase the key again afterwards."
    return said


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
