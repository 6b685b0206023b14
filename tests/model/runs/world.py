"""The states of the model of runs: a database, a broker, and at most one process that leads."""

from __future__ import annotations

from typing import Literal, NamedTuple

GONE, ABSENT, FREE = -2, -1, 0
"""What stands for the leader id of a row that is purged, not committed yet, or of no living leader."""

OUT, WRITTEN, FAILED, POISON = 0, 1, 2, 3
"""How far a record is that was sent by itself: FAILED has a report of that, and may be written; POISON is
refused for good."""

Rows = tuple[int, ...]


class Log(NamedTuple):
    """What the log has of a key: so many of its first rows, of which this one was written last, and where."""

    rows: int = 0
    last: int = -1
    partition: int = 0


class Sent(NamedTuple):
    """A record that was sent by itself, perhaps as the first of a run."""

    row: int
    leads: bool
    stage: int = OUT
    partition: int = 0


class Line(NamedTuple):
    """What the client of runs has for one partition.

    Attributes:
        partition: Which.
        rows: Those without a report, in order.
        written: How many of these the broker has written.
        known: Whether the broker knows the producer there.
    """

    partition: int
    rows: Rows = ()
    written: int = 0
    known: bool = False


Trouble = Literal["refused", "purged", "unplaced"]


class Client(NamedTuple):
    """What the client of runs knows and the product has not asked for yet.

    Attributes:
        lines: By partition.
        troubles: Reports of rows that were not delivered.
        fatal: Whether it has failed for good and has not said so yet.
        over: Whether it sends nothing any more.
    """

    lines: tuple[Line, ...] = ()
    troubles: tuple[tuple[int, Trouble], ...] = ()
    fatal: bool = False
    over: bool = False


Loop = Literal["marker", "purger"]


class Call(NamedTuple):
    """What was asked of the database: rows that are marked, purged or reset under a leader id.

    ``heads`` are those of keys to be parked, ``ids`` all marked rows of these keys.
    """

    verb: Literal["mark", "purge", "reset", "park"]
    leader: int
    ids: Rows = ()
    heads: Rows = ()
    limit: int = 0
    excluded: tuple[str, ...] = ()

    @property
    def loop(self) -> Loop:
        """Returns which loop asks it."""
        return "purger" if self.verb == "purge" else "marker"


class Process(NamedTuple):
    """A leader.

    Attributes:
        memory: The product's objects, pickled.
        alone: What it has sent by itself.
        client: Its client of runs, if that is open.
        marker: What the loop has asked of the database that marks and resets.
        purger: The same of the one that purges.
        cut: The loops whose connections to the database are lost, of which they do not know yet.
    """

    memory: bytes
    alone: tuple[Sent, ...] = ()
    client: Client | None = None
    marker: Call | None = None
    purger: Call | None = None
    cut: tuple[Loop, ...] = ()


class World(NamedTuple):
    """One state.

    Attributes:
        rows: The leader id of each row.
        log: By key.
        parked: The parked keys.
        process: Who leads.
        strays: Calls that nobody waits for, which may be carried out at any time or never.
        requests: Those to the broker; without the rule on late ones only. Rows, and a partition.
        faults: How many may still happen.
        wrong: The property that the last step broke, empty for none.
    """

    rows: Rows
    log: tuple[Log, ...]
    parked: frozenset[int] = frozenset()
    process: Process | None = None
    strays: tuple[Call, ...] = ()
    requests: tuple[tuple[Rows, int], ...] = ()
    faults: int = 0
    wrong: str = ""
