"""Histories: what writers, harvesters and the clock do, one step after the other.

A step says who and what: ``w1 begin``, ``w1 insert a``, ``h0 poll``, ``clock +60``. A step that makes no
sense where it stands does nothing, so any part of a history is a history, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

History = tuple[str, ...]

MOST_STEPS = 40


@dataclass(frozen=True, slots=True)
class Kind:
    """Histories of one kind.

    Attributes:
        name: Its name.
        about: What happens in them, for the table.
        steps: What happens beside single inserts with a commit and polls: step → how often, as a weight.
        writers: How many transactions may be open at once.
        keys: The keys that are written.
    """

    name: str
    about: str
    steps: dict[str, float] = field(default_factory=dict)
    writers: int = 2
    keys: str = "abc"


KINDS = (
    Kind("plain", "one transaction after the other", writers=1),
    Kind("late commits", "transactions overlap and commit in any order", writers=3),
    Kind("rollbacks", "some transactions roll back", {"rollback": 2.0}),
    Kind("savepoints", "some roll back to a savepoint", {"savepoint": 2.0, "undo": 2.0}),
    Kind("long transactions", "some stay open for minutes", {"clock +60": 1.5}, writers=3),
    Kind("one key", "all write one key, each behind the other's lock", writers=3, keys="a"),
    Kind("crashes", "the harvester is killed at any step", {"step": 6.0, "crash": 1.5}, writers=1),
    Kind("two harvesters", "a second one starts, and the first does not know", {"step": 4.0, "other": 4.0}),
    Kind("clock", "the database's clock jumps back and forth", {"clock -5": 1.0, "clock +5": 1.0}),
    Kind("poison", "a record that the broker refuses", {"poison": 0.7}, writers=1),
    Kind("restore", "the database is restored from a backup", {"backup": 0.7, "restore": 0.7}, writers=1),
)


def generate(kind: Kind, seed: int) -> History:
    """Returns a history of a kind; the same for the same seed."""
    random = Random(f"{kind.name} {seed}")
    steps: list[str] = []
    weights = {"write": 6.0, "commit": 4.0, "poll": 3.0, "clock +1": 1.0, **kind.steps}
    length = random.randint(MOST_STEPS // 2, MOST_STEPS)
    for _ in range(length):
        [what] = random.choices(list(weights), list(weights.values()))
        writer = f"w{random.randrange(kind.writers)}"
        match what:
            case "write" | "poison":
                word = "insert" if what == "write" else "poison"
                steps += [f"{writer} begin", f"{writer} {word} {random.choice(kind.keys)}"]
            case "commit" | "rollback" | "savepoint" | "undo":
                steps.append(f"{writer} {what}")
            case "poll" | "step" | "crash":
                steps.append(f"h0 {what}")
            case "other":
                steps.append(f"h1 {random.choice(('poll', 'step'))}")
            case _:
                steps.append(what)
    return tuple(steps)


def smallest(history: History, shows: Callable[[History], bool]) -> History:
    """Returns a part of a history that still shows something, and shows it no more without any one step.

    Larger parts are left out first, so that few executions are needed.
    """
    size = len(history) // 2
    while size:
        start, shrunk = 0, False
        while start < len(history):
            shorter = (*history[:start], *history[start + size :])
            if shorter and shows(shorter):
                history, shrunk = shorter, True
            else:
                start += size
        size = size if shrunk and size == 1 else size // 2
    return history


def in_words(history: Sequence[str]) -> str:
    """Returns a history in one line."""
    return ", ".join(history)
