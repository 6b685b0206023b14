"""The states of the model: a database, a broker, and processes of which any may believe that it leads."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

GONE, ABSENT, FREE = -2, -1, 0
"""What stands for the leader id of a row that is purged, not committed yet, or unmarked."""

UNSENT, REPEATABLE, ONCE, COMPACTED = 0, 1, 2, 3
"""Where a row is: not in the log; there by at-least-once delivery only; there by a transaction; the same, but
a later record of its key is all that the log has kept."""

UNRAISED = -1
"""The token of a process that has not raised the fence yet."""

Rows = tuple[int, ...]
"""Rows by their numbers, which count from 0 in the order of their times."""


class Batch(NamedTuple):
    """As ``outbox_api.Batch``, or rows that carry a name: those of at-least-once delivery.

    Attributes:
        ids: The rows' ids, in ascending order.
        newest: The last of its rows.
        name: What its rows carry; names count from 1, and 0 is none.
    """

    ids: tuple[int, ...]
    newest: int
    name: int = 0


Batches = tuple[Batch, ...]


class Checkpoint(NamedTuple):
    """As ``outbox_core.delivery.checkpoint.Checkpoint``.

    Attributes:
        published: The batches that were known to be committed when it was written.
        attempted: The one that its own transaction publishes.
    """

    published: Batches = ()
    attempted: Batch | None = None


class Note(NamedTuple):
    """That a lane transacts: as one of how many, under which name, and with its checkpoint at which place."""

    lanes: int
    name: int
    place: int


class FenceRow(NamedTuple):
    """The fence's row of one lane."""

    lanes: int = 0
    token: int = 0
    attempt: int = 0
    noted: Note | None = None


class Database(NamedTuple):
    """The fence, a row for each lane; the leader id of each row of the outbox; the heads of parked keys."""

    fence: tuple[FenceRow, ...]
    rows: Rows
    parked: Rows = ()


class Transaction(NamedTuple):
    """What a producer has begun.

    Attributes:
        rows: In the order of their ids; none once it is sure which of them are committed.
        place: Where it writes the checkpoint.
        checkpoint: What it makes the checkpoint; ``None`` once it is sure that the checkpoint is aborted.
        early: Those of its rows that lie ahead of one that should come first.
        prepared: Whether it is sure what becomes of it.
        former: The checkpoint before; of use only where an end of an earlier transaction may come late.
        contradicted: Whether such an end has left something that the client will be told of.
    """

    rows: Rows
    place: int
    checkpoint: Checkpoint | None
    early: Rows = ()
    prepared: bool = False
    former: Checkpoint | None = None
    contradicted: bool = False


class Channel(NamedTuple):
    """What the broker knows of one lane under one name.

    Attributes:
        epoch: The producer epoch.
        transaction: The one that is open or prepared.
        checkpoints: The last one at each place, committed or not; ``None`` where there is none.
        late: Whether it cannot be read yet what is committed of the last transaction.
        committed: The last committed checkpoint at each place. Nobody heeds these but for ablations, without
            which there are none.
        hanging: Rows behind the end of their transaction, where the broker does not verify: the next one in
            their partition commits or aborts them.
    """

    epoch: int = 0
    transaction: Transaction | None = None
    checkpoints: tuple[Checkpoint | None, ...] = (None,)
    late: bool = False
    committed: tuple[Checkpoint | None, ...] = ()
    hanging: Rows = ()


class Call(NamedTuple):
    """A request to a server: the name of one of the methods of ``Servers``, and its arguments."""

    name: str
    arguments: tuple[Any, ...]


class Selected(NamedTuple):
    """A batch with its rows."""

    batch: Batch
    rows: Rows


class Wish(NamedTuple):
    """What an advance shall select: how many rows, outside of which batches.

    What is not behind the id ``after`` is left out by an ablation.
    """

    limit: int
    pending: Batches
    after: int = -1


NOTHING = Wish(0, ())


class Advance(NamedTuple):
    """An advance that a lane waits for; what it selects is ``vain`` if the lane has lost its use for it."""

    call: Call
    vain: bool = False


Acquiring = Literal[
    "enter",
    "recall",
    "former",
    "open",
    "look",
    "raise",
    "read",
    "find",
    "purge",
    "empty",
    "note",
    "clean",
    "end",
    "refused",
]
Working = Literal["run", "over"]
Repeating = Literal["mark", "send", "clear"]
Phase = Acquiring | Working | Repeating
"""What a lane does next: to be acquired, in exactly-once delivery, in at-least-once delivery."""


class Lane(NamedTuple):
    """What a process does for one lane.

    Attributes:
        number: The lane's number.
        channel: Which of the broker's channels it publishes to.
        settles: Whether it only settles what former lanes have left.
        phase: What it does next.
        attempt: The fence's, as the lane knows it.
        noted: What the fence noted of the lane when it was looked at; of no use any more once the lane runs.
        epoch: The producer's.
        known: The batches that are in the log, as the checkpoint says.
        attempted: The batch of the last transaction, of which the log has to tell.
        unsure: The rows of it that are in the outbox.
        found: Those of them that are in the log, as a batch.
        publishing: The batch whose transaction is open.
        selected: The batch that comes next; in at-least-once delivery, what is marked.
        advance: What is out at the database.
        finished: The batches that are committed and not being purged.
        locked: Committed rows that could not be purged.
        poison: The row whose key is to be parked.
        last: The last id that it has selected; counts for an ablation only.
        spent: Whether its producer has ended, since the end of a transaction was in doubt.
    """

    number: int
    channel: int = 0
    settles: bool = False
    phase: Phase = "enter"
    attempt: int = 0
    noted: Note | None = None
    epoch: int = 0
    known: Batches = ()
    attempted: Batch | None = None
    unsure: Rows = ()
    found: Batches = ()
    publishing: Selected | None = None
    selected: Selected | None = None
    advance: Advance | None = None
    finished: Batches = ()
    locked: Batches = ()
    poison: int | None = None
    last: int = -1
    spent: bool = False


class Process(NamedTuple):
    """A harvester; without a token it does not lead, nor believe to. ``UNRAISED`` is for an ablation only."""

    token: int = 0
    lanes: tuple[Lane, ...] = ()
    draining: bool = False


class World(NamedTuple):
    """One state.

    Attributes:
        database: As everybody sees it.
        disk: As it is after a crash.
        channels: The broker, by name and lane.
        log: Where each row is.
        processes: The harvesters.
        strays: Calls that nobody waits for, which may be carried out at any time or never.
        terms: How often a process may still be elected while another leads, or be told to hand over.
        faults: How many faults may still happen.
        wrong: The property that the last step broke, empty for none.
    """

    database: Database
    disk: Database
    channels: tuple[Channel, ...]
    log: Rows
    processes: tuple[Process, ...]
    strays: tuple[Call, ...]
    terms: int
    faults: int
    wrong: str = ""
