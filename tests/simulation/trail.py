"""What the audit knows: of each record, of each producer, and how far the copies of a key have come."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import cast

from outbox_api import MarkedRecord
from outbox_core.transforms.torn import TornRows

FOR_GOOD = 1_000_000
"""Refusals of a record that the broker never takes."""
FAULTY = 2 * FOR_GOOD
"""Those of a row that makes no message, and is never to be sent."""


FIRST_CROWDED = 500
"""Keys from this number on are hot, or fail: nobody promises when they flow."""
FAILING = 1000
"""Keys from this number on fail as long as applications are busy."""


TOPICS = ("t", "u")
"""Those of records; the second only in some worlds."""


class Violation(AssertionError):  # noqa: N818 - it is called so everywhere
    """An invariant was broken.

    Attributes:
        invariant: Its name.
        key: The key at fault, or ``None``.
        lane: The lane at fault, or ``None``.
    """

    def __init__(self, invariant: str, message: str, key: str | None = None, lane: int | None = None) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant
        self.key = key
        self.lane = lane


def serial_of(record: MarkedRecord) -> int:
    """Returns the number of a record, which stands for its content."""
    return cast("int", record.timestamp_ms)


class Session:
    """What the audit needs to know of a producer, that of one attempt at a lane.

    Attributes:
        token: Its leader's.
        lanes: How many lanes there are.
        superseded: Kept by the fence, see :mod:`tests.simulation.audit`.
        losses: How often it was; it may enter the lane anew.
        torn: The rows of which a part is in the log; the senders that one recovery opens share it.
        trail: What it has done.
    """

    def __init__(self, lane: int, name: str) -> None:
        self.name = name
        self.lane = lane
        self.token = 0
        self.lanes = 0
        self.superseded = False
        self.losses = 0
        self.torn = TornRows()
        self.trail = Trail()

    def close(self) -> None:
        """Ends; what is under way is left to whoever opens the lane next."""


@dataclass(slots=True)
class Entry:
    """One record an application inserted, and what became of it.

    Attributes:
        serial: Its number, which no other record has. It is the id of its row too, unless ids are given out
            anew.
        key: Its key.
        bucket: The hash of its key.
        transaction: What inserted it.
        inserted: The number of the event that inserted it.
        committed: The number of the event that committed it; 0 for never.
        sent: Whether a producer has ever been given it: then its content stays as it is.
        failed: Whether its last producer has given it up: a request may be on its way nevertheless.
        copies: How many copies the log holds; a transaction's from when it is certain to commit.
        transacted: How many of these are a transaction's.
        token: The newest leader of whom there is one without a transaction.
        seen: Whether a reader of committed messages has seen a copy.
        skipped: Whether it was deleted and need not arrive.
        superseded: Whether a lane has deleted it, as a later record of its key waited.
        forgiven: Whether an operator has taken it for unpublished, whatever the log holds.
        refusals: How often the broker will still refuse it for good.
        size: The bytes of its value.
        topic: Its topic.
        kept: Whether a trigger keeps its row, until an operator removes it.
        apart: Whether there is no order between topics, as one of them may be paused.
        vain: Who has deleted its row last, in vain; ``None`` if an operator has it tried again.
        inserted_at: The true time of its insert, in seconds.
        since: The true time of its commit, in seconds.
    """

    serial: int
    key: str
    bucket: int
    transaction: int
    inserted: int
    committed: int = 0
    sent: bool = False
    failed: bool = False
    copies: int = 0
    transacted: int = 0
    token: int = 0
    seen: bool = False
    skipped: bool = False
    superseded: bool = False
    forgiven: bool = False
    refusals: int = 0
    size: int = 1
    topic: str = TOPICS[0]
    inserted_at: float = 0.0
    since: float = 0.0
    kept: bool = False
    vain: Session | None = None
    apart: bool = False

    @property
    def stream(self) -> str:
        """What it has an order in: its key, or its key within its topic."""
        return f"{self.key} of {self.topic}" if self.apart else self.key

    def precedes(self, other: Entry) -> bool:
        """Tells whether this record comes causally before another of its key."""
        if self.stream != other.stream:
            return False
        if self.transaction == other.transaction:
            return self.serial < other.serial
        return 0 < self.committed < other.inserted


@dataclass(slots=True)
class Furthest:
    """How far the appends of one key have come; enough to tell whether one goes back.

    Attributes:
        inserted: The highest event number at which one of them was inserted.
        entry: Which one.
        siblings: Transaction → the highest serial of those appended that it inserted.
    """

    inserted: int = 0
    entry: Entry | None = None
    siblings: dict[int, int] = field(default_factory=dict)

    def reaches_behind(self, entry: Entry) -> bool:
        """Tells whether a causal successor of ``entry`` was appended before."""
        return self.inserted > entry.committed or self.siblings.get(entry.transaction, 0) > entry.serial

    def take(self, entry: Entry) -> None:
        if entry.inserted > self.inserted:
            self.inserted, self.entry = entry.inserted, entry
        if self.siblings.get(entry.transaction, 0) < entry.serial:
            self.siblings[entry.transaction] = entry.serial


@dataclass(slots=True)
class Trail:
    """What one session has done.

    Attributes:
        flying: Key → the records published and not yet purged or failed, one or those of a run.
        acked: Records of which it was told that they were delivered.
        furthest: Key → how far its own appends have come.
        stale: Key → the records that it appended after it was superseded.
        runs: Key → the first record of its last run.
        run_of: Record → the first record of its run.
        told: Ids of records of which it was told that a transaction has committed them.
    """

    flying: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    acked: set[int] = field(default_factory=set)
    furthest: defaultdict[str, Furthest] = field(default_factory=lambda: defaultdict(Furthest))
    stale: defaultdict[str, list[Entry]] = field(default_factory=lambda: defaultdict(list))
    runs: dict[str, int] = field(default_factory=dict)
    run_of: dict[int, int] = field(default_factory=dict)
    told: set[int] = field(default_factory=set)
