"""What is explored: how large a world is, what may go wrong in it, and which rule of the protocol is off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Rule = Literal[
    # of batches
    "delete the set",
    "delete after the commit",
    "durable purge",
    "see lower ids",
    "leave out what is pending",
    "leave out what is being purged",
    "guard the deletion",
    "guard the selection",
    "unknown never purges",
    "abandon what is selected behind",
    "what goes on has no gap in a key",
    "park before the next selection",
    "leave out the whole parked key",
    # of the checkpoint
    "checkpoint",
    "checkpoint lists what is being purged",
    "checkpoint lists what is locked",
    "leave out what is locked",
    "drain waits for locked rows",
    "recovery lists what is locked",
    "settling waits for locked rows",
    # of recovery
    "producer fence",
    "init before checkpoint",
    "read the last attempt",
    "look for each record",
    "heed the trace",
    "assume no whole partitions",
    "heed later records",
    "stable log",
    "raise the fence before the checkpoint is read",
    "fence before the checkpoint is written",
    "purge before emptying the checkpoint",
    "list what is found before its purge",
    "refuse a forgotten checkpoint",
    # of answers about the end of a transaction
    "end a producer after an end in doubt",
    "a contradiction is unknown",
    # of the database's fence
    "database fence",
    "attempt in the fence",
    # of changes of the lanes and of the mode
    "settle former lanes",
    "settle before the first selection",
    "note before the first publish",
    "settle before at-least-once",
    "refuse to settle by a forgotten checkpoint",
    # of changes of names and places
    "open the former sender",
    "heed the former sender's checkpoint",
    "read the checkpoint where it is noted",
    "note another name or place",
    # no rule, but how the model judges
    "excuse stale copies",
]
"""What the protocol rests on; an ablation turns one of these off."""

Fault = Literal[
    "crash",  # of a process
    "doubt",  # a reply is lost, or comes too late; what was asked may still be carried out
    "bump",  # the same, of a bump
    "abort",  # because of a record
    "park",  # the same, whose key is parked then
    "lock",  # others have locked rows that should be deleted
    "timeout",  # of a transaction
    "loss",  # the broker loses an open transaction
    "restart",  # of the database after a crash
    "forget",  # the broker forgets a checkpoint
    "age",  # no fault: a lane that is settled starts anew, which writes its checkpoint anew
    "rerun",  # an engine runs the lanes of a term once more, while they still run elsewhere
    "tear",  # of a transaction: the broker commits some of its partitions, and nobody is told
    "cut",  # the same, and of each partition it commits what came first
    "repeat",  # an EndTxn is answered when it is sent again; its first copy is on its way
    "compact",  # no fault: the log keeps only the later one of two records of a key
    "late log",  # no fault: what is committed can be read some time after its transaction has ended
    "blind",  # no fault: who only selects may miss that the fence is lost
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
        keys: The key of each row, in the order of their times; a row belongs to lane key mod lanes. Each key
            has a partition of its own.
        late: Rows that are committed some time, the others are there from the start.
        limits: How many rows a selection may ask for.
        terms: How often a process is elected while another leads, or asked to hand over.
        faults: How many faults happen at most.
        menu: Which may happen.
        ids: The id of each row, where ids are given out anew; else the rows are numbered.
        contents: What each row says, where some say the same; else each says something else.
        verifies: Whether the broker refuses what is produced outside of a transaction.
    """

    name: str
    settings: tuple[Setting, ...]
    keys: tuple[int, ...]
    late: frozenset[int] = frozenset()
    limits: tuple[int, ...] = (1,)
    terms: int = 1
    faults: int = 1
    menu: frozenset[Fault] = frozenset()
    ids: tuple[int, ...] = ()
    contents: tuple[int, ...] = ()
    verifies: bool = True
