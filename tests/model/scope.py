"""What is explored: how large a world is, what may go wrong in it, and which rule of the protocol is off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Rule = Literal[
    # of the design
    "producer fence",
    "init before checkpoint",
    "durable mark",
    "durable purge",
    "checkpoint lists all unpurged",
    "database fence",
    "checkpoint",
    "purge by name",
    "fresh names",
    "unknown never purges",
    # of changes of the lanes, of the mode, and of checkpoints that are forgotten
    "settle former lanes",
    "settle before the first mark",
    "note before the first publish",
    "settle before at-least-once",
    "refuse a forgotten checkpoint",
    "refuse to settle by a forgotten checkpoint",
    # of changes of names and places
    "open the former sender",
    "heed the former sender's checkpoint",
    "read the checkpoint where it is noted",
    "note another name or place",
    "fence before the checkpoint",
    # of the implementation
    "abandon what is marked behind",
    "attempt in the fence",
    "stable checkpoint",
    "purge before emptying the checkpoint",
    # no rule, but how the model judges
    "excuse stale copies",
]
"""What the protocol rests on; an ablation turns one of these off."""

Fault = Literal[
    "crash",  # of a process
    "doubt",  # a reply is lost, or comes too late; what was asked may still be carried out
    "bump",  # the same, of a bump
    "abort",  # because of a record
    "timeout",  # of a transaction
    "loss",  # the broker loses an open transaction
    "restart",  # of the database after a crash
    "forget",  # the broker forgets a checkpoint
    "age",  # no fault: a lane that is settled starts anew, which writes its checkpoint anew
    "rerun",  # an engine runs the lanes of a term once more, while they still run elsewhere
    "late checkpoint",  # no fault: checkpoints can be read some time after their transaction is committed
]


@dataclass(frozen=True)
class Setting:
    """How a process is configured: lanes, delivery, their names at the broker, and the checkpoint's place."""

    lanes: int = 1
    once: bool = True
    name: int = 0
    place: int = 0


@dataclass(frozen=True)
class Scope:
    """How large a world is.

    Attributes:
        name: What it is about.
        settings: One for each process.
        keys: The key of each row, in the order of ids; row n belongs to lane key mod lanes.
        late: Rows that are committed some time, the others are there from the start.
        limits: How many rows a mark may ask for.
        terms: How often a process is elected while another leads, or asked to hand over.
        faults: How many faults happen at most.
        menu: Which may happen.
    """

    name: str
    settings: tuple[Setting, ...]
    keys: tuple[int, ...]
    late: frozenset[int] = frozenset()
    limits: tuple[int, ...] = (1,)
    terms: int = 1
    faults: int = 1
    menu: frozenset[Fault] = frozenset()
