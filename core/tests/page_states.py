"""For tests of the page: states of an outbox, and dead letters."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from outbox_api import Action, Backlog, Entry, Fence, LaneStatus, Parked, Takeover, Upkeep
from outbox_api.base.record import Header, MarkedRecord
from outbox_api.seams.parking import DeadLetter, DeadLetterStatus
from outbox_api.seams.pausing import Pause
from outbox_core.status.clusters import ClusterState
from outbox_core.status.pauses import PauseState
from outbox_core.status.snapshot import Snapshot

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m\"'&"


def lane(number: int = 0, lanes: int = 2, age: float | None = 0.5, **metrics: Any) -> LaneStatus:
    known = {
        "purged_per_second": 120.0,
        "in_flight": 3,
        "waiting": 1,
        "purged_total": 4711,
        "elector": "lease",
    }
    heartbeat = None if age is None else NOW - timedelta(seconds=age)
    fence = Fence(number, lanes, token=4_200_017, epoch=1)
    return LaneStatus(fence, "harvester-a", NOW - timedelta(hours=2), heartbeat, age, known | metrics)


def snapshot(
    *lanes: LaneStatus,
    records: int = 12,
    oldest: float | None = 0.4,
    parked: Parked | None = None,
    clusters: list[ClusterState] | None = None,
    upkeep: Upkeep | None = None,
    pauses: Sequence[PauseState] = (),
) -> Snapshot:
    backlog = Backlog(records, exact=True, oldest=oldest)
    held = list(lanes) or [lane(0), lane(1)]
    none = Parked(0, None)
    return Snapshot(
        "shop.outbox", backlog, parked or none, held, 15.0, clusters, upkeep or Upkeep(dead=12_000), pauses
    )


def pause(topic: str = "orders", *, open_: tuple[int, ...] = (), reason: str = "ticket 17") -> PauseState:
    made = Pause(topic, "olga", reason, NOW - timedelta(minutes=12), NOW + timedelta(minutes=48), 720.0)
    return PauseState(made, open_, 1204, exact=True)


def letter(
    id_: int = 7,
    key: str = "order-4711",
    *,
    reason: str = "MSG_SIZE_TOO_LARGE: Broker: Message size too large",
    status: DeadLetterStatus = DeadLetterStatus.PARKED,
    value: str | bytes | None = None,
    headers: tuple[Header, ...] = (),
) -> DeadLetter:
    record = MarkedRecord(id_, "orders", key, value, headers)
    return DeadLetter(record, reason, 5, NOW - timedelta(minutes=3), 180.0, status)


def entry(text: str = "key 'order-4711' (record 7)", outcome: str | None = "1 changed") -> Entry:
    return Entry(uuid4(), NOW, Action("alice", "http", "retry", text, text), outcome)


def takeover(reason: str) -> Takeover:
    return Takeover(2, reason, NOW - timedelta(minutes=9))
