"""How exactly-once delivery begins: what earlier batches left behind is settled before anything is marked.

A batch whose transaction was committed, and that was not yet purged when its lane broke off, is known by the
lane's marker alone. So whoever takes over a lane does this, and the order matters:

1. enters the lane at the fence: from now on nobody else marks or purges for it;
2. opens its transactional sender: from now on nobody else publishes for it, and what was under way has ended;
3. reads the marker, which is final only now;
4. purges, durably, what the marker says is in the log. Whatever else is marked is not there.

Every lane does so when it starts. Where the number of lanes has changed, a record may have been published by
another lane than the one that would mark it now; and at-least-once lanes read no marker at all. In both cases
the leader settles the lanes of old, all of them, before it starts any of its own. The fence notes which lanes
publish in transactions, so that this is known after any crash.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import NamedTuple
from uuid import uuid4

from outbox_sdk import Batch, DriverError, Fence, OutboxTable, Parked, TransactionalSender

from outbox_core.config.settings import Delivery
from outbox_core.lane import Plan

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
        DriverError: The database or the broker cannot be used; or the marker is gone (not retryable).
    """
    with _taken(plan, lane) as taken:
        table, fence, sender = taken.table, taken.fence, taken.sender
        sender.publish([], [])
        if not taken.noted:
            table.transact(fence, Transacting(fence.lanes))
        return Opened(fence, sender, table.parked(), taken.recovered)


def settle_lanes(plan: Plan, noted: Mapping[int, int]) -> None:
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
    former = [lane for lane, lanes in noted.items() if lanes != same]
    if not former:
        return
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="settling") as pool:
        for lane, rows in zip(former, pool.map(lambda lane: _settle(plan, lane), former), strict=True):
            log.info("settled lane %d of an earlier term: %d rows were in the log already", lane, rows)


def _settle(plan: Plan, lane: int) -> int:
    with _taken(plan, lane) as taken:
        taken.table.transact(taken.fence, None)
        taken.sender.close()
        return taken.recovered


class _Taken(NamedTuple):
    """A lane that nobody else marks, purges or publishes for, and whose marker has nothing more to tell."""

    table: OutboxTable
    fence: Fence
    sender: TransactionalSender
    noted: bool
    recovered: int


@contextmanager
def _taken(plan: Plan, lane: int) -> Iterator[_Taken]:
    """Does the four steps of this module; the sender stays open unless the block fails."""
    with closing(plan.dialect.create().connect()) as table:
        fence = table.enter(lane, plan.lanes, plan.token)
        # Outboxes of many databases may share the broker, and be called the same.
        name = f"{plan.outbox}.{lane}.{fence.identity}"
        sender = plan.publisher.create().open_transactional(name)
        try:
            noted = lane in table.transacting()
            marker = _marker(sender, name, noted=noted)
            recovered = table.advance(fence, marker, uuid4(), 0, []).purged if marker else 0
            yield _Taken(table, fence, sender, noted, recovered)
        except BaseException:
            sender.close()
            raise


def _marker(sender: TransactionalSender, lane: str, *, noted: bool) -> Sequence[Batch]:
    marker = sender.marker()
    if marker is None and noted:
        raise DriverError(
            f"lane {lane!r} has published in transactions, and the broker has no marker of it: it has "
            "expired, or this is another broker. What is marked may be in the log or not; look, and then let "
            "'outbox fence forget' take it for unpublished",
            retryable=False,
        )
    return marker or []
