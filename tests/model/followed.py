"""Which of the model's actions the traces of harvesters contain, and whether the model permits them all."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from .actions import ACTIONS, action
from .replay import NotOfTheModel, Replay
from .scope import Fault
from .traces import NEVER, Asked, keys_of, lanes_of, of_lanes, parked_of, read

KEYS = 2
"""Of how many keys of a lane the rows are followed."""
MOST = 100_000
"""Longer traces are not followed."""
SECONDS = 180.0
"""After so many seconds no other key is followed: a long trace takes minutes for each."""
UNSEEN: Mapping[str, str] = {
    "finds the checkpoint forgotten": "no fault deletes checkpoints",
    "marks": "lanes of at-least-once delivery are not followed",
    "sends": "likewise",
    "purges what it sent": "likewise",
    "row is committed": "seen as its row is selected",
    "broker completes": "seen as the lane's next transaction begins",
    "broker shows": "a search waits for it",
    "late call": "seen in what recoveries find, if nothing else explains that",
    "is contradicted": "no trace has needed it",
    "timeout": "likewise",
    "loss": "likewise",
    "tear": "all rows of one key are in one partition",
    "late commit": "prevented",
    "late abort": "prevented",
    "crash of the database": "a lane waits in vain",
    "bump on its way": "nobody waits for it",
    "compaction": "no topic of a fault is compacted",
    "forgotten": "no fault deletes checkpoints",
    "grown old": "takes six hours",
    "runs twice": "only Spark does; its lanes are not followed",
}
"""Actions that traces do not show, and why."""


class Followed(NamedTuple):
    """What was found of one lane and one key.

    Attributes:
        lane: The lane.
        key: The key.
        steps: The times and actions of its history.
        wrong: Why there is none, empty if there is one.
        at: From when on there is none.
    """

    lane: int
    key: str
    steps: Sequence[tuple[float, str]]
    wrong: str = ""
    at: float = 0.0


def follow(
    files: Sequence[Path], menu: frozenset[Fault] = frozenset(), *, since: float = -NEVER, keys: int = KEYS
) -> Iterator[Followed]:
    """Follows all lanes, and the rows of some keys of each.

    Args:
        files: The traces, one for each process.
        menu: What may have happened to transactions whose end was not answered.
        since: Only keys are followed that have rows from this time on, by the traces' clock.
        keys: Of how many keys, the ones with most rows among them.

    Raises:
        ValueError: They cannot be followed, or not all: they are too long, or a key was of several lanes at a
            time.
    """
    ends = time.monotonic() + SECONDS
    calls = read(files)
    if len(calls) > MOST:
        raise ValueError(f"{len(calls):,} calls are too many")
    recent = [call for call in calls if call.ends >= since]
    for lane in sorted({call.lane for call in calls if call.lane is not None}):
        for key in _chosen(keys_of(recent, lane), parked_of(recent, lane), keys):
            if time.monotonic() > ends:
                raise ValueError(f"lane {lane} and later ones were not followed within {SECONDS:.0f} s")
            lanes = {each for _, each in lanes_of(calls, key)}
            yield _followed(of_lanes(calls, lanes), lane, key, menu)


def _chosen(found: Counter[str], parked: Collection[str], number: int) -> list[str]:
    first = max(parked, key=found.__getitem__, default=None)
    most = [key for key, _ in found.most_common((number + 1) // 2)]
    if first is not None and first not in most:
        most[-1] = first
    others = sorted(found.keys() - set(most))
    return most + random.Random(len(found)).sample(others, min(number - len(most), len(others)))


def _followed(calls: Sequence[Asked], lane: int, key: str, menu: frozenset[Fault]) -> Followed:
    try:
        history = Replay(calls, key, menu).run()
    except NotOfTheModel as error:
        return Followed(lane, key, (), str(error), error.at)
    return Followed(lane, key, [(at, action(words)) for at, words in history.steps()])


def table(seen: Mapping[str, Collection[str]]) -> str:
    """Returns a table of all actions, as text.

    Args:
        seen: Action → the faults under which it was seen.
    """
    lines = [f"{'action':30} seen under"]
    for each in ACTIONS:
        why = UNSEEN.get(each, "")
        where = ", ".join(sorted(seen[each])) if seen.get(each) else f"NOT{why and f': {why}'}"
        lines.append(f"{each:30} {where}")
    return "\n".join(lines)
