"""A request to end a transaction that was sent twice: its first copy arrives during a later transaction.

To the broker it is that one's own, as long as the epoch is the same: it commits or aborts what has been
produced so far, of each partition what came first. What is produced to these partitions afterwards is
refused; a broker that does not verify writes it, and the next transaction there ends it. A partition that was
not added before begins another transaction at the broker, which the client's own request ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Literal, NamedTuple

from .broker import with_channel, with_checkpoint, with_committed
from .lane_view import Step, told_channel
from .servers import Servers
from .world import ONCE, Call, Checkpoint, Rows, Transaction, World

Time = Literal["before", "after", "another"]
"""When the checkpoint is produced: before the late end; after it, to a partition that was added before; or in
another transaction, which begins then."""


_COMES: Mapping[Time, str] = {"before": "came before", "after": "comes after it", "another": "begins another"}


class Split(NamedTuple):
    """Where a late end has met a transaction.

    Attributes:
        before: The rows that were produced before.
        after: Those that are produced after it, to partitions that were added before.
        another: Those of partitions that are added after it.
        checkpoint: The checkpoint's time; ``None`` if there is none any more.
    """

    before: Rows
    after: Rows
    another: Rows
    checkpoint: Time | None


def with_copy(world: World, number: int, epoch: int, *, commits: bool) -> World:
    """Returns a world in which the first copy of a request to end a transaction is on its way."""
    return world._replace(strays=(*world.strays, Call("end", (number, epoch, commits))))


def ended(servers: Servers, world: World, number: int, epoch: int, commits: bool) -> Iterator[Step]:
    """Returns the ways in which a copy ends what is open; without a transaction it has no effect."""
    channel = world.channels[number]
    transaction = channel.transaction
    if transaction is None or transaction.prepared or servers.vain(world, Call("end", (number, epoch))):
        return
    for split in _splits(transaction, servers.keys):
        words = (
            f"a late {'commit' if commits else 'abort'} ends the transaction of {told_channel(world, number)}"
        )
        words += f" behind rows {list(split.before)}"
        words += f", rows {list(split.after)} come after it" if split.after else ""
        words += f", rows {list(split.another)} begin another" if split.another else ""
        words += f", the checkpoint {_COMES[split.checkpoint]}" if split.checkpoint else ""
        yield words, _ended(servers, world, number, transaction, split, commits=commits)


def _splits(transaction: Transaction, keys: tuple[int, ...]) -> Iterator[Split]:
    ways: list[list[tuple[Rows, Rows, Rows]]] = []
    for key in sorted({keys[row] for row in transaction.rows}):
        rows = tuple(row for row in transaction.rows if keys[row] == key)
        ways.append([*((rows[:size], rows[size:], ()) for size in range(len(rows) + 1)), ((), (), rows)])
    times: tuple[Time | None, ...] = ("before", "after", "another") if transaction.checkpoint else (None,)
    for parts, checkpoint in product(product(*ways), times):
        before, after, another = (tuple(row for part in parts for row in part[at]) for at in range(3))
        nothing_added = len(another) == len(transaction.rows) and checkpoint in ("another", None)
        if not nothing_added:
            yield Split(before, after, another, checkpoint)


def _ended(
    servers: Servers, world: World, number: int, transaction: Transaction, split: Split, *, commits: bool
) -> World:
    if commits:
        early = bool({*transaction.early} & {*split.before})
        world = servers.deliver(world, split.before, ONCE, early=early)
    channel, place = world.channels[number], transaction.place
    if commits and split.checkpoint == "before":
        channel = with_committed(channel, place, transaction.checkpoint)
    contradicted = transaction.contradicted
    if servers.verifies:
        contradicted |= bool(split.after) or split.checkpoint == "after"
        if split.checkpoint == "after":
            channel = with_checkpoint(channel, place, transaction.former)
    else:
        channel = channel._replace(hanging=tuple(sorted({*channel.hanging, *split.after})))
    left: Checkpoint | None = transaction.checkpoint if split.checkpoint == "another" else None
    if not (commits or split.another or left):
        contradicted = True
    rest = transaction._replace(
        rows=split.another,
        checkpoint=left,
        early=tuple(row for row in transaction.early if row in split.another),
        contradicted=contradicted,
    )
    return with_channel(world, number, channel._replace(transaction=rest))
