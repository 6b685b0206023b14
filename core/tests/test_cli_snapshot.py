"""How `outbox status` shows the fence and the backlog."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

from outbox_api import Backlog, Fence, LaneStatus, Parked
from outbox_api.portable.view import PortableView
from outbox_core.cli.snapshot import as_text, overview
from outbox_core.config import parse
from outbox_core.status.snapshot import Snapshot, as_data
from rich.console import Console

from .fakes import FakeTable

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
READING = {
    "purged_per_second": 100.0,
    "in_flight": 3.0,
    "waiting": 5.0,
    "blocked_seconds": 0.0,
    "purged_total": 12345.0,
}
WAITING = Backlog(1234, exact=False, oldest=75.0)
NONE = Parked(0, None)


def lane_status(
    lane: int, *, token: int = 7, lanes: int = 2, age: float | None = 1.0, **metrics: Any
) -> LaneStatus:
    heartbeat_at = None if age is None else NOON
    return LaneStatus(
        Fence(lane, lanes, token, 1),
        "host_1_2",
        NOON,
        heartbeat_at,
        age,
        READING | metrics if heartbeat_at else {},
    )


def take(*lane_statuses: LaneStatus, backlog: Backlog = WAITING, parked: Parked = NONE) -> Snapshot:
    settings = parse("harvest: {outboxTable: shop.outbox}", "f.yaml", {}).harvest
    return Snapshot.take(
        cast("PortableView", FakeTable(held=lane_statuses, backlog=backlog, parked=parked)), settings
    )


def shown(snapshot: Snapshot) -> str:
    console = Console(width=100, highlight=False)
    with console.capture() as capture:
        console.print(as_text(snapshot))
    return capture.get()


def test_what_the_fence_says_controls_no_terminal_and_no_line():
    held = replace(lane_status(0, elector="[red]\x1b[31m[/]", silence_before=2.5), holder="me\x1b[2J\nforged")
    snapshot = take(held)
    console = Console(width=200, highlight=False)
    with console.capture() as capture:
        console.print(as_text(snapshot))
        console.print(overview([("shop", snapshot)]))
    text = capture.get()
    assert "\x1b" not in text
    assert text.count(r"me\x1b[2J\nforged") == 2
    assert text.count(r"[red]\x1b[31m[/]") == 2


def test_a_leader_that_has_left_leads_no_more():
    snapshot = take(lane_status(0, left=True), lane_status(1, age=4.0, left=True))
    assert as_data(snapshot)["leader"]["left"] == "2026-03-01T12:00:00+00:00"
    assert "left" not in as_data(snapshot)["lanes"][0]
    console = Console(width=200, highlight=False)
    with console.capture() as capture:
        console.print(as_text(snapshot))
        console.print(overview([("shop", snapshot)]))
    text = capture.get()
    assert "none: host_1_2 left at 2026-03-01" in text
    assert "host_1_2 (left)" in text
    assert as_data(take(lane_status(0, left=True), lane_status(1)))["leader"]["left"] is None


def test_a_harvest_that_goes_well():
    snapshot = take(lane_status(0, elector="lease", silence_before=2.5), lane_status(1))
    data = json.loads(json.dumps(as_data(snapshot)))
    assert data["outbox"] == "shop.outbox"
    assert data["backlog"] == {"records": 1234, "exact": False, "oldest_seconds": 75.0}
    assert data["leader"] == {
        "name": "host_1_2",
        "token": 7,
        "since": "2026-03-01T12:00:00+00:00",
        "left": None,
        "elector": "lease",
        "silence_before_seconds": 2.5,
    }
    assert data["total"] == {
        "purged_per_second": 200.0,
        "in_flight": 6.0,
        "waiting": 10.0,
        "purged_total": 24690.0,
        "aborted": 0,
        "recovered": 0,
    }
    assert data["parked"] == {"keys": 0, "oldest_seconds": None}
    assert data["blocked_seconds"] == 0
    assert data["lanes"][1] == {
        "lane": 1,
        "epoch": 1,
        "heartbeat": "2026-03-01T12:00:00+00:00",
        "heartbeat_age_seconds": 1.0,
        "silent": False,
        **READING,
    }
    text = shown(snapshot)
    assert "about 1,234 records, the oldest 1m15s old" in text
    assert "host_1_2, since 2026-03-01" in text
    assert "fence token 7" in text
    assert "200 records/s" in text
    assert "parked   0 keys " in text
    assert "a key has been failing" not in text
    assert "12,345" in text
    assert "batches" not in text
    assert "1s ago" in text
    assert "silent" not in text


def test_records_that_nobody_is_to_send_have_no_age_and_say_why():
    backlog = Backlog(3, exact=True, oldest=None)
    assert "3 records, all parked" in shown(take(backlog=backlog, parked=Parked(1, 5.0)))


def test_parked_keys_are_those_of_the_outbox_and_not_of_the_lanes():
    snapshot = take(lane_status(0, parked=1.0), lane_status(1), parked=Parked(3, 125.0))
    assert as_data(snapshot)["parked"] == {"keys": 3, "oldest_seconds": 125.0}
    assert "3 keys, the first for 2m05s" in shown(snapshot)
    assert "1 key, the first for 5s" in shown(take(parked=Parked(1, 5.0)))


def test_the_key_that_has_failed_longest_is_told():
    snapshot = take(lane_status(0, blocked_seconds=12.0), lane_status(1, blocked_seconds=90.0))
    assert as_data(snapshot)["blocked_seconds"] == 90.0
    assert "a key has been failing for 1m30s" in shown(snapshot)
    silent = take(lane_status(0, blocked_seconds=12.0), lane_status(1, blocked_seconds=90.0, age=16.0))
    assert as_data(silent)["blocked_seconds"] == 12.0


def test_nobody_has_ever_led():
    snapshot = take(backlog=Backlog(0, exact=True, oldest=None))
    assert as_data(snapshot)["leader"] is None
    assert as_data(snapshot)["lanes"] == []
    assert "none yet" in shown(snapshot)
    assert "backlog  0 records" in shown(snapshot)


def test_lanes_of_an_earlier_leader_are_left_out():
    # A leader with two lanes after one with three: it raised the third row too, and no lane enters it.
    snapshot = take(lane_status(0), lane_status(1), lane_status(2, lanes=3))
    assert [lane["lane"] for lane in as_data(snapshot)["lanes"]] == [0, 1]


def test_a_lane_that_says_nothing_is_silent_and_its_rate_does_not_count():
    snapshot = take(lane_status(0), lane_status(1, age=16.0))
    data = as_data(snapshot)
    assert [lane["silent"] for lane in data["lanes"]] == [False, True]
    assert data["total"]["purged_per_second"] == 100.0
    assert data["total"]["purged_total"] == 24690.0
    assert "silent 16s" in shown(snapshot)
    assert "nobody leads" not in shown(snapshot)


def test_a_harvest_that_has_stopped():
    snapshot = take(lane_status(0, age=4000.0), lane_status(1, age=None))
    text = shown(snapshot)
    assert "0 records/s" in text
    assert "silent 1h06m" in text
    assert "silent never" in text
    assert "no-leader: no lane has sent a heartbeat" in text


BATCHES = [
    {"first": 1, "last": 5000, "stage": "published", "records": 5000},
    {"first": 5001, "last": 6400, "stage": "publishing", "records": 1200},
]


def test_batches_can_be_followed():
    snapshot = take(
        lane_status(0, batches=BATCHES, aborted=2, recovered=1500), lane_status(1, batches=[], aborted=1)
    )
    data = json.loads(json.dumps(as_data(snapshot)))
    assert data["lanes"][0]["batches"] == BATCHES
    assert data["lanes"][1]["batches"] == []
    assert (data["total"]["aborted"], data["total"]["recovered"]) == (3, 1500)
    rows = [" ".join(line.split()) for line in shown(snapshot).splitlines()]
    assert "lane aborted recovered batches" in rows
    assert "0 2 1,500 published 5,000, publishing 1,200" in rows
    assert "1 1 0 none" in rows


def test_what_a_silent_lane_said_of_its_batches_is_out_of_date():
    snapshot = take(lane_status(0, batches=BATCHES, age=16.0, recovered=7), lane_status(1, batches=BATCHES))
    assert [lane["batches"] for lane in as_data(snapshot)["lanes"]] == [[], BATCHES]
    text = shown(snapshot)
    assert text.count("published 5,000") == 1
    assert "0 0 7 silent" in [" ".join(line.split()) for line in text.splitlines()]
