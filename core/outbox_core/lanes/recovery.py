"""How exactly-once delivery begins: what earlier batches left behind is settled before anything is marked.

A batch whose transaction was committed, and that was not yet purged when its lane broke off, is known by the
lane's marker alone. So whoever takes over a lane does this, and the order matters:

1. enters the lane at the fence: from now on nobody else marks or purges for it;
2. opens its transactional sender: from now on nobody else publishes for it, and what was under way has ended;
3. reads the marker, which is final only now;
4. purges, durably, what the marker says is in the log. Whatever else is marked is not there. Where nothing is
   to be purged, the database still makes sure that the lane is this leader's: one that stood still since the
   first step would write over what its successor has written.

Every lane does so when it starts. Where the number of lanes has changed, a record may have been published by
another lane than the one that would mark it now; and at-least-once lanes read no marker at all. In both cases
the leader settles the lanes of old, all of them, before it starts any of its own. The fence notes which lanes
publish in transactions, so that this is known after any crash.

The fence also notes under which name a lane's sender was opened, and where it kept the marker. A marker at
any other place may be one of old, which does not tell all that is in the log. A lane that would use another
name or place opens the sender that is noted and reads the marker where it is noted. It opens its own sender
before the purge, then writes a marker at its own place, and notes that; it publishes nothing before.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import NamedTuple
from uuid import uuid4

from outbox_sdk import (
    Batch,
    DriverError,
    Fence,
    OutboxTable,
    Parked,
    Transacting,
    TransactionalSender,
)

from outbox_core.config.settings import Delivery
from outbox_core.lanes.plan import Plan

log = logging.getLogger(__name__)

AT_ONCE = 8
"""Lanes that are settled at the same time."""


class Opened(NamedTuple):
    """A lane of exactly-once delivery that may begin.

    Attributes:
        fence: Its right to mark and purge.
        sender: Its right to publish.
        parked: How much is parked.
        recovered: How many rows were found to be in the log already, and purged.
    """

    fence: Fence
    sender: TransactionalSender
    parked: Parked
    recovered: int


def open_lane(plan: Plan, lane: int) -> Opened:
    """Takes over a lane of this term.

    The lane's marker is written anew, so that the broker does not forget it while somebody leads.

    Raises:
        LeadershipLost: The fence carries somebody else's token.
        DriverError: The database or the broker cannot be used; or the marker is gone, or at another broker
            (not retryable).
    """
    with _entered(plan, lane) as entered:
        table, fence, noted = entered
        # Outboxes of many databases may share the broker, and be called the same.
        name = f"{table.name}.{lane}.{fence.identity}"
        former = noted if noted is not None and noted.sender != name else None
        marker = _former_marker(plan, former) if former else []
        sender = plan.publisher.create().open_transactional(name)
        try:
            if former is None:
                marker = _marker(sender, name, noted)
            recovered = _purge(entered, marker)
            sender.publish([], [])
            note = Transacting(fence.lanes, name, sender.place)
            if note != noted:
                table.transact(fence, note)
            return Opened(fence, sender, table.parked(), recovered)
        except BaseException:
            sender.close()
            raise


def settle_lanes(plan: Plan, noted: Mapping[int, Transacting]) -> None:
    """Settles the lanes that may have published what the lanes of this term would not find in the log.

    Idempotent. Without such lanes it touches nothing.

    Args:
        plan: The term's plan.
        noted: What the fence has noted, see :meth:`outbox_sdk.OutboxTable.transacting`.

    Raises:
        LeadershipLost: The fence carries somebody else's token.
        DriverError: The database or the broker cannot be used; or a marker is gone (not retryable).
    """
    same = plan.lanes if plan.delivery is Delivery.EXACTLY_ONCE else 0
    former = [lane for lane, note in noted.items() if note.lanes != same]
    if not former:
        return
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="settling") as pool:
        for lane, rows in zip(former, pool.map(lambda lane: _settle(plan, lane), former), strict=True):
            log.info("settled lane %d of an earlier term: %d rows were in the log already", lane, rows)


def _settle(plan: Plan, lane: int) -> int:
    with _entered(plan, lane) as entered:
        recovered = _purge(entered, _former_marker(plan, entered.noted)) if entered.noted else 0
        entered.table.transact(entered.fence, None)
        return recovered


class _Entered(NamedTuple):
    """A lane that nobody else marks or purges for, and what the fence notes of it."""

    table: OutboxTable
    fence: Fence
    noted: Transacting | None


@contextmanager
def _entered(plan: Plan, lane: int) -> Iterator[_Entered]:
    with closing(plan.dialect.create().connect()) as table:
        fence = table.enter(lane, plan.lanes, plan.token)
        noted = table.transacting().get(lane)
        if noted is not None and not noted.sender:
            # Earlier versions made the name of what the configuration calls the table.
            noted = replace(noted, sender=f"{plan.outbox}.{lane}.{fence.identity}")
        yield _Entered(table, fence, noted)


def _former_marker(plan: Plan, noted: Transacting) -> Sequence[Batch]:
    """Ends what the sender that is noted was about, and reads its marker."""
    with closing(plan.publisher.create().open_transactional(noted.sender)) as sender:
        return _marker(sender, noted.sender, noted)


def _purge(entered: _Entered, marker: Sequence[Batch]) -> int:
    """Purges until nothing is found, as a purge may be cut short; once at least, for the fence's sake."""
    rows = 0
    while purged := entered.table.advance(entered.fence, marker, uuid4(), 0, []).purged:
        rows += purged
    return rows


def _marker(sender: TransactionalSender, name: str, noted: Transacting | None) -> Sequence[Batch]:
    """Reads the marker that tells all; one that nothing is noted of may be missing."""
    marker = sender.marker(noted.place if noted else "")
    if marker is not None or noted is None:
        return marker or []
    message = (
        f"lane {name!r} has published in transactions, and the broker has no marker of it: it has expired, "
        "its topic was deleted, or this is another broker. "
    )
    if not noted.place:
        message += (
            "Or an earlier version of outbox ran here whose 'outboxTable' was written in another way, with "
            "or without its schema: then write it so again until this lane has begun. "
        )
    message += (
        "What is marked may be in the log or not; look, and then let 'outbox fence forget' take it for "
        "unpublished"
    )
    raise DriverError(message, retryable=False)
