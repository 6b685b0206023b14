"""What is explored of runs: how large a world is, what may go wrong in it, and which rule is off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Rule = Literal[
    # of the state machine
    "the first record goes alone",
    "a run has one partition",
    "a run is bounded",
    "the next run waits for the purge",
    "mark anew when a purge finds too few rows",
    "purge only what is acknowledged",
    # of the producer of runs
    "nothing is written behind a refused record",
    "a new producer's first record goes alone",
    # of the database
    "purge none behind a locked row",
    "leave out parked keys",
    "the fence refuses late calls",
    # of time
    "late requests are gone",
]
"""What runs rest on; an ablation turns one of these off. The last is assumed, not kept by the product."""

Fault = Literal[
    "crash",  # of the leader; what it has sent or asked is still carried out, or never
    "lapse",  # its lease is over for a moment
    "drain",  # it is told to hand over
    "refuse",  # the broker refuses a request
    "park",  # it refuses a record for good, whose key is parked and freed later
    "unready",  # it refuses a producer's first request in a partition, takes the second, and then the first
    "timeout",  # nothing is acknowledged in time
    "lock",  # others have locked a row that should be deleted or reset
    "doubt",  # the database's reply is lost; what was asked is carried out, later, or never
    "restart",  # of the database after a crash, which undoes the latest marks and cuts connections
]


@dataclass(frozen=True)
class Scope:
    """How large a world is.

    Attributes:
        name: What it is about.
        keys: The key of each row, in the order of ids.
        run: How many records a run has at most.
        faults: How many faults happen at most.
        menu: Which may happen.
        late: Rows that are committed some time, those of a key in order; the others are there from the start.
        partitions: To how many a key may go. Clients learn of them at different times.
        mark: How many rows a mark claims at most.
    """

    name: str
    keys: tuple[int, ...]
    run: int = 3
    faults: int = 1
    menu: frozenset[Fault] = frozenset()
    late: frozenset[int] = frozenset()
    partitions: int = 1
    mark: int = 9
