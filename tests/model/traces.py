"""Traces of real runs: what the lanes of harvesters have asked of database and broker, and when."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .world import Batch, Rows

NEVER = float("inf")

_LENGTH = 300
"""Characters of what is told of a call's arguments, and of its answer."""

INNER = ("begin", "commit", "abort")
"""Calls of a producer, within those of a lane."""
_JUST = 1e-7
"""Seconds before something, without anything between."""

Run = tuple[int, int]
Place = tuple[int, int | None]


@dataclass(frozen=True, eq=False)
class Asked:
    """One call.

    Attributes:
        who: The number of the leadership, in the order of their begins: to the model, each is a process.
        do: What it does, as the recorder calls it.
        lane: The lane's number; ``None`` for those of a leader.
        asks: Its arguments.
        begins: When it began; all processes have the same clock.
        ends: When it was answered; ``NEVER`` if it was not.
        answer: What was answered, or why it failed.
    """

    who: int
    do: str
    lane: int | None
    asks: dict[str, Any]
    begins: float
    ends: float = NEVER
    answer: dict[str, Any] | None = None

    @property
    def place(self) -> Place:
        """Process and lane."""
        return self.who, self.lane

    @property
    def failed(self) -> bool:
        """Whether it was answered with an error."""
        return self.answer is not None and "fails" in self.answer

    @property
    def lost(self) -> bool:
        """Whether the answer is that the fence is another's."""
        return self.answer is not None and self.answer.get("lost", False)

    @property
    def idle(self) -> bool:
        """Whether it has purged and selected nothing, under the lane's own fence."""
        if self.do != "advance" or self.answer is None or self.failed or self.lost:
            return False
        return not (self.asks["finished"] or self.answer["rows"] or self.answer.get("locked"))

    @property
    def says(self) -> str:
        """The error's text."""
        return str(self.answer.get("says", "")) if self.answer else ""

    @property
    def spent(self) -> bool:
        """Whether its producer has ended, though the call has succeeded."""
        return self.answer is not None and self.answer.get("spent", False)

    def __str__(self) -> str:
        ends = "never" if self.ends == NEVER else f"{self.ends:.4f}"
        said = f"{self.do} {_short(self.asks)} -> {_short(self.answer)}"
        return f"{self.begins:.4f} to {ends}, process {self.who + 1}: {said}"


def _short(said: object) -> str:
    text = str(said)
    return text if len(text) <= _LENGTH else f"{text[:_LENGTH]} ..."


def read(files: Sequence[Path]) -> list[Asked]:
    """Returns the calls of all processes, one file for each, in the order of their begins.

    What a leadership that was lost still does is not done by the next one of its process.
    """
    calls: list[Asked] = []
    for file in files:
        begun: dict[tuple[int, int], Asked] = {}
        for line in file.read_text().splitlines(keepends=True):
            if not line.endswith("\n"):
                continue  # the process was killed as it wrote
            event = json.loads(line)
            at, pid = event.pop("t"), event.pop("pid")
            if "call" in event:
                number, do, lane, by = (event.pop(name) for name in ("call", "do", "lane", "by"))
                begun[pid, number] = Asked(by or 0, do, lane, event, at)
            elif (key := (pid, event.pop("ends"))) in begun:
                begun[key] = replace(begun[key], ends=at, answer=event)
        calls.extend(begun.values())
    return list(_numbered(sorted(calls, key=lambda call: call.begins)))


def _numbered(calls: Sequence[Asked]) -> Iterator[Asked]:
    """Yields the calls with the number of their leadership instead of its token."""
    numbers: dict[int, int] = {}
    for place, call in enumerate(calls):
        token = call.who
        if call.do == "bump":
            token = (call.answer or {}).get("token", -1 - place)
        yield replace(call, who=numbers.setdefault(token, len(numbers)))


def of_lanes(calls: Sequence[Asked], lanes: Collection[int]) -> list[Asked]:
    """Returns the calls that concern lanes, in the order of their begins, or of what the lanes have decided.

    A lane decides to publish a batch before it selects the next one; its threads may begin the other way
    round. One of them may also begin after another has failed, which has not reached the lane yet.
    """
    found = [call for call in calls if call.lane in lanes or call.do == "bump"]
    chosen: dict[tuple[int, int], float] = {}  # when a row was selected last
    published: dict[Place, float] = {}  # when a batch was: what an abort leaves may go on without a selection
    looks: defaultdict[Place, list[float]] = defaultdict(list)  # when selections began
    failed: dict[Place, float] = {}  # when a process's lane has failed, until it starts anew
    ordered = []
    for call in found:
        if call.do == "advance" and call.asks["limit"]:
            looks[call.place].append(call.begins)
    for call in found:
        begins = call.begins
        if call.do == "bump":
            failed = {place: at for place, at in failed.items() if place[0] != call.who}
        elif call.do == "enter":
            failed.pop(call.place, None)
        elif call.do == "advance":
            chosen.update(((call.who, row), call.ends) for row, _ in _rows(call))
        elif call.do == "publish":
            since = chosen.get((call.who, call.asks["rows"][0]), begins)
            since = max(since, published.get(call.place, since))
            published[call.place] = call.ends
            later = looks[call.place][bisect_right(looks[call.place], since) :]
            begins = min(begins, later[0] - _JUST) if later else begins
        if call.do not in INNER:
            begins = min(begins, failed.get(call.place, NEVER) - _JUST)
            if call.failed:
                failed[call.place] = min(call.ends, failed.get(call.place, NEVER))
        ordered.append(replace(call, begins=begins) if begins < call.begins else call)
    return sorted(ordered, key=lambda call: call.begins)


def keys_of(calls: Sequence[Asked], lane: int) -> Counter[str]:
    """Returns the keys of a lane, and how many of their rows were selected."""
    rows = {(row, key) for call in calls if call.lane == lane for row, key in _rows(call)}
    return Counter(key for _, key in rows)


def parked_of(calls: Sequence[Asked], lane: int) -> set[str]:
    """Returns the keys of a lane that were parked."""
    heads = {row for call in calls if call.lane == lane and call.do == "park" for row in call.asks["rows"]}
    return {key for call in calls if call.lane == lane for row, key in _rows(call) if row in heads}


def _rows(call: Asked) -> Iterator[tuple[int, str]]:
    if call.do == "advance" and call.answer:
        yield from ((row, key) for row, key in call.answer.get("rows", ()))


def lanes_of(calls: Sequence[Asked], key: str) -> set[tuple[int, int]]:
    """Returns of how many lanes which was that of a key, as its rows were selected."""
    numbers = {call.who: call.asks["lanes"] for call in calls if call.do == "bump"}
    return {
        (numbers[call.who], call.lane)
        for call in calls
        if call.lane is not None and call.who in numbers and any(its == key for _, its in _rows(call))
    }


class Projection:
    """What the model sees of a trace: the rows of one key, numbered from 0.

    Args:
        calls: The trace.
        key: The key.
    """

    def __init__(self, calls: Sequence[Asked], key: str) -> None:
        self.ids = sorted({row for call in calls for row, its in _rows(call) if its == key})
        self._numbers = {row: number for number, row in enumerate(self.ids)}

    def rows(self, ids: Sequence[int]) -> Rows:
        """Returns the numbers of those rows that it has."""
        return tuple(sorted(self._numbers[row] for row in ids if row in self._numbers))

    def batch(self, runs: Sequence[Run]) -> Batch:
        """Returns a batch; one without rows has a number of its own."""
        ids: list[int] = []
        for first, last in runs:
            ids.extend(range(bisect_left(self.ids, first), bisect_right(self.ids, last)))
        return Batch(tuple(ids), ids[-1] if ids else -2 - (runs[0][0] if runs else 0))

    def of(self, batches: Sequence[Sequence[Run]]) -> set[int]:
        """Returns the rows of batches."""
        return {row for runs in batches for row in self.batch(runs).ids}
