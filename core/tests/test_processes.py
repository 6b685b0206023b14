"""Which processes harvest an outbox, by their notes and the leader's heartbeats, and how that is shown."""

import json
from datetime import UTC, datetime
from typing import Any

from outbox_api import DriverError
from outbox_api.portable.outboxes import MemberRow
from outbox_core.cli.snapshot import as_text
from outbox_core.config import parse
from outbox_core.status.model import status_of
from outbox_core.status.processes import tag
from outbox_core.status.snapshot import Snapshot, as_data
from outbox_core.status.verdict import LastStatus
from rich.console import Console

from .fakes import FakeTable
from .test_cli_snapshot import lane_status

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def note(member: str, *, age: float = 1.0, outbox: str = FakeTable.name, **changes: Any) -> MemberRow:
    about = {
        "process": member.partition(" ")[0],
        "version": "1.2.3",
        "engine": "inline",
        "since": NOON.isoformat(),
        "every": 10.0,
        "ready": True,
        "outboxes": [tag("app.other"), tag(outbox)],
    }
    return MemberRow(member, "", 0, age, json.dumps(about | changes))


def taken(*rows: MemberRow, leader: str = "host 1", age: float = 1.0, view: Any = None) -> Snapshot:
    settings = parse("harvest: {outboxTable: shop.outbox}", "f.yaml", {}).harvest
    table: Any = view or FakeTable(held=[lane_status(0, lanes=1, age=age, member=leader)])
    table.present = list(rows)
    return Snapshot.take(table, settings)


def roles(snapshot: Snapshot) -> list[tuple[str, str, bool]]:
    return [(each["name"], each["role"], each["silent"]) for each in as_data(snapshot)["processes"]]


def test_two_processes_of_one_name_are_two():
    found = taken(note("host 2"), note("host 1"), note("host 3", ready=False))
    assert roles(found) == [
        ("host", "leads", False),
        ("host", "stands-by", False),
        ("host", "starting", False),
    ]


def test_a_process_that_stands_aside_says_why():
    found = taken(note("host 2", ready=False, aside="cannot reach Kafka at broker:9092"))
    [process] = as_data(found)["processes"]
    assert (process["role"], process["aside"]) == ("starting", "cannot reach Kafka at broker:9092")
    console = Console(width=200)
    with console.capture() as capture:
        console.print(as_text(found))
    assert "stands aside: cannot reach Kafka at broker:9092" in capture.get()


def test_who_leads_is_known_by_a_heartbeat_that_is_not_too_old():
    assert roles(taken(note("host 1"), age=60.0)) == [("host", "stands-by", False)]
    left = FakeTable(held=[lane_status(0, lanes=1, member="host 1", left=True)])
    assert roles(taken(note("host 1"), view=left)) == [("host", "stands-by", False)]
    assert roles(taken(note("host 1"), leader="host 7")) == [("host", "stands-by", False)]
    lanes = [lane_status(0, lanes=2, age=60.0, member="host 1"), lane_status(1, lanes=2, age=None)]
    assert roles(taken(note("host 1"), view=FakeTable(held=lanes))) == [("host", "stands-by", False)]
    nobody = FakeTable()
    assert roles(taken(note("host 1"), view=nobody)) == [("host", "stands-by", False)]


def test_a_silent_process_is_marked_and_vanishes():
    rows = [
        note("a 1", age=29.0),
        note("b 1", age=31.0),
        note("c 1", age=301.0),
        note("d 1", age=31.0, every=20),
    ]
    assert roles(taken(*rows)) == [
        ("a", "stands-by", False), ("b", "stands-by", True), ("d", "stands-by", False)
    ]  # fmt: skip
    shown = status_of("o", LastStatus(taken(*rows), NOON), NOON).processes
    assert [row.role for row in shown] == ["stands by", "-", "stands by"], "a silent one may do nothing"


def test_notes_about_other_outboxes_and_of_other_versions_are_left_out():
    others = [
        note("a 1", outbox="public.outbox2"),
        *(MemberRow("x", "g", 1, 1.0, text) for text in ("", "[]")),
    ]
    assert roles(taken(*others, note("b 1", since=7))) == []


def test_without_the_right_to_read_notes_it_says_what_to_do():
    class Forbidden(FakeTable):
        def members(self) -> list[MemberRow]:
            raise DriverError("permission denied for table outbox_fence_members", retryable=False)

    snapshot = taken(view=Forbidden(held=[lane_status(0, lanes=1)]))
    assert as_data(snapshot)["processes"] is None
    console = Console(width=200, highlight=False)
    with console.capture() as capture:
        console.print(as_text(snapshot))
    assert "permission denied" in capture.get()
    assert "has the grants" in capture.get()


def test_what_is_shown_controls_no_terminal_and_seldom_changes():
    found = taken(note("me\x1b[2J 1", engine="<b>", age=1.0))
    [row] = status_of("o", LastStatus(found, NOON), NOON, steady=True).processes
    assert (row.name, row.engine, row.heard) == ("me\\x1b[2J", "<b>", "in the last 10s")
    [row] = status_of("o", LastStatus(found, NOON), NOON).processes
    assert row.heard == "1s ago"
    console = Console(width=200, highlight=False)
    with console.capture() as capture:
        console.print(as_text(found))
    assert "\x1b" not in capture.get()


def test_latency_and_topics_are_shown():
    recent = {
        "seconds": 60.0,
        "latency": [[0.005, 0.01, 90], [0.5, 1.0, 10]],
        "topics": {"orders": [90, 0], "bills": [10, 4]},
    }
    lanes = [lane_status(0, lanes=2, recent=recent), lane_status(1, lanes=2, age=99.0, recent=recent)]
    snapshot = taken(view=FakeTable(held=lanes))
    data = as_data(snapshot)
    assert data["latency"]["records"] == 100, "a silent lane does not count"
    assert [(each["topic"], each["failed"]) for each in data["topics"]] == [("orders", 0), ("bills", 4)]
    assert not any("recent" in lane for lane in data["lanes"])
    status = status_of("o", LastStatus(snapshot, NOON), NOON)
    assert status.latency is not None
    assert (status.latency.p50, status.latency.p99) == ("7.8 ms", "950 ms")
    assert [(each.topic, each.rate, each.share, each.fails) for each in status.topics] == [
        ("orders", "1.5", "90%", False), ("bills", "0.2", "10%", True)
    ]  # fmt: skip
    console = Console(width=200, highlight=False)
    with console.capture() as capture:
        console.print(as_text(snapshot))
    assert "p50 7.8 ms, p99 950 ms" in capture.get()
