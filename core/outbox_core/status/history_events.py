"""What happened between two polls of an outbox; which of its problems began and ended is part of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Self

from outbox_core.status.health import Code, HealthProblem
from outbox_core.status.snapshot import OPERATOR, Snapshot, is_silent
from outbox_core.text.wording import duration

_MOST_NAMED = 8
"""So many lanes are named; more are counted."""


class HistoryEventCode(StrEnum):
    """The kinds of events; programs may rely on these names."""

    LEADER_CHANGED = "leader-changed"
    FENCE_RAISED = "fence-raised"
    """By an operator."""
    LANES_SILENT = "lanes-silent"
    LANES_HEARD = "lanes-heard"
    KEYS_PARKED = "keys-parked"
    KEYS_FREED = "keys-freed"
    TAKEOVER_BEGAN = "takeover-began"
    """A deliberate one, as the one that ended."""
    TAKEOVER_ENDED = "takeover-ended"
    PROBLEM_BEGAN = "problem-began"
    PROBLEM_ENDED = "problem-ended"
    DATABASE_AWAY = "database-away"
    DATABASE_BACK = "database-back"


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """Something that happened to an outbox."""

    at: datetime  # when it was seen, which is after it happened by the time between two polls at most
    code: HistoryEventCode  # what it is, for programs
    text: str
    """What it is, as a short sentence in one line without a full stop; free of secrets and of what records
    contain."""


Change = tuple[HistoryEventCode, str]


@dataclass(frozen=True, slots=True)
class StatusAt:
    """What a poll has seen."""

    snapshot: Snapshot
    silent: frozenset[int]
    """The lanes that were silent at that moment; some fall silent without any change in the state."""

    @classmethod
    def of(cls, at: datetime, snapshot: Snapshot) -> Self:
        """Returns what was seen at an instant, by whose clock a lane without a heartbeat is silent."""
        silent = (lane.fence.lane for lane in snapshot.lanes if is_silent(lane, snapshot.longest_silence, at))
        return cls(snapshot, frozenset(silent))


def changes(before: StatusAt, after: StatusAt, leader: str | None) -> Iterator[Change]:
    """Compares two polls; ``leader`` led last, up to the earlier one, or is ``None`` if none was seen."""
    yield from _leader(before.snapshot, after.snapshot, leader)
    yield from _silence(before, after)
    yield from _takeovers(before.snapshot, after.snapshot)
    yield from _parked(before.snapshot.parked.keys, after.snapshot.parked.keys)


def harvester(snapshot: Snapshot) -> str | None:
    """Returns the harvester that holds the fence; ``None`` if an operator does, or nobody ever has."""
    holder = snapshot.lanes[0].holder if snapshot.lanes else OPERATOR
    return None if holder.startswith(OPERATOR) else holder


def _token(snapshot: Snapshot) -> int | None:
    return snapshot.lanes[0].fence.token if snapshot.lanes else None


def _leader(before: Snapshot, after: Snapshot, former: str | None) -> Iterator[Change]:
    if not after.lanes or _token(before) == _token(after):
        return
    holder, leads = after.lanes[0].holder, harvester(after)
    if leads is None:
        yield HistoryEventCode.FENCE_RAISED, f"{holder} has raised the fence"
    elif former is None:
        yield HistoryEventCode.LEADER_CHANGED, f"{holder} leads{_after(before, after)}"
    elif former == leads:
        yield HistoryEventCode.LEADER_CHANGED, f"{holder} leads anew{_after(before, after)}"
    else:
        told = f"the leader changed from {former} to {holder}{_after(before, after)}"
        yield HistoryEventCode.LEADER_CHANGED, told


def _after(before: Snapshot, after: Snapshot) -> str:
    """Says for how long no leader had been heard, at most where the new leader has not told it yet."""
    leader = after.lanes[0]
    silence = leader.metrics.get("silence_before")
    if isinstance(silence, int | float):
        return f", after {duration(silence)} of silence"
    heard = max((lane.heartbeat_at for lane in before.lanes if lane.heartbeat_at), default=None)
    if heard is None or heard > leader.since:
        return ""
    return f", after at most {duration((leader.since - heard).total_seconds())} of silence"


def _silence(before: StatusAt, after: StatusAt) -> Iterator[Change]:
    was = before.silent if _token(before.snapshot) == _token(after.snapshot) else frozenset()
    every = [lane.fence.lane for lane in after.snapshot.lanes]
    if fallen := after.silent - was:
        nobody = ": nobody leads" if len(after.silent) == len(every) else ""
        yield HistoryEventCode.LANES_SILENT, f"{_named(fallen, every)} silent{nobody}"
    if heard := was - after.silent:
        yield HistoryEventCode.LANES_HEARD, f"{_named(heard, every)} heard again"


def _named(lanes: frozenset[int], every: Sequence[int]) -> str:
    """Returns some lanes of all, with their verb."""
    if len(lanes) == len(every):
        return "the only lane is" if len(every) == 1 else f"all {len(every)} lanes are"
    if len(lanes) > _MOST_NAMED:
        return f"{len(lanes)} of {len(every)} lanes are"
    names = ", ".join(map(str, sorted(lanes)))
    return f"lane {names} of {len(every)} is" if len(lanes) == 1 else f"lanes {names} of {len(every)} are"


def _takeovers(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    was = {each.cluster for each in before.clusters or () if each.takeover}
    now = {each.cluster: each.takeover for each in after.clusters or () if each.takeover}
    for cluster, takeover in now.items():
        if cluster not in was:
            reason = f": {' '.join(takeover.reason.split())}" if takeover.reason else ""
            yield HistoryEventCode.TAKEOVER_BEGAN, f"the takeover of cluster {cluster} began{reason}"
    for cluster in sorted(was - now.keys()):
        yield HistoryEventCode.TAKEOVER_ENDED, f"the takeover of cluster {cluster} ended"


def _parked(before: int, after: int) -> Iterator[Change]:
    if after == before:
        return
    changed = abs(after - before)
    keys = "1 key was" if changed == 1 else f"{changed:,} keys were"
    left = f"{after:,} {'is' if after == 1 else 'are'} parked now" if after else "none is parked now"
    if after > before:
        yield HistoryEventCode.KEYS_PARKED, f"{keys} parked{f', {left}' if before else ''}"
    else:
        yield HistoryEventCode.KEYS_FREED, f"{keys} freed, {left}"


def in_one_line(text: str, longest: int = 200) -> str:
    """Returns a text without line breaks, cut where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


CALM = timedelta(seconds=30)
"""A problem has ended once it was not seen for so long; one that comes and goes would fill the history."""

_ENDED = {
    Code.OLD_RECORDS: "the oldest record is no longer too old",
    Code.INTAKE: "rows of other tables are taken in again",
    Code.BLOCKED_KEY: "no key has been failing for long any more",
    Code.TAKEN_OVER: "no more records of other clusters are taken over",
    Code.ORPHANS: "there are no more records of clusters that nobody serves",
    Code.LONG_PAUSE: "no pause has lasted for too long any more",
    Code.OLD_SNAPSHOT: "no old snapshot keeps dead rows any more",
    Code.DEAD_ROWS: "there are no longer too many dead rows",
    Code.OVERDUE: "what should be gone is gone",
}
"""The problems whose begin and end are told here. Silence, parked keys and deliberate takeovers are told by
what changed."""


class Problems:
    """The problems that are present, and when each was seen last."""

    def __init__(self) -> None:
        self._seen: dict[Code, datetime] = {}

    def compare(self, at: datetime, found: Sequence[HealthProblem]) -> Iterator[Change]:
        """Says which problems began and ended, given those that are there now."""
        present = {problem.code: problem.message for problem in found if problem.code in _ENDED}
        for code, message in present.items():
            if code not in self._seen:
                yield HistoryEventCode.PROBLEM_BEGAN, message
            self._seen[code] = at
        for code, seen in list(self._seen.items()):
            if at < seen:  # the clock was set back
                self._seen[code] = at
            elif code not in present and at - seen >= CALM:
                del self._seen[code]
                yield HistoryEventCode.PROBLEM_ENDED, _ENDED[code]
