"""What `outbox status` and `outbox health` say of several clusters."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from outbox_api import Fence, LaneStatus, OriginBacklog, Seam
from outbox_core.cli.health import _as_data as health_as_data
from outbox_core.cli.health import _lines as health_lines
from outbox_core.cli.snapshot import as_text, overview
from outbox_core.config import parse
from outbox_core.settings import HarvestSettings
from outbox_core.status.clusters import RECENT_SECONDS
from outbox_core.status.health import Code, Health, examine
from outbox_core.status.snapshot import Snapshot, as_data
from rich.console import Console

from .fakes import FakeClusters, FakeDialect, FakePlugin, FakeTable, made

SETTINGS = parse("harvest: {}", "f.yaml", {}).harvest
WAITING = [
    OriginBacklog(1, 12, exact=True, oldest=0.5),
    OriginBacklog(2, 10_000, exact=False, oldest=700.0),
    OriginBacklog(7, 34, exact=True, oldest=7200.0),
]


def lane(number: int, age: float = 1.0, **taken: float) -> LaneStatus:
    """Returns a lane that has taken records over; cluster → seconds since the last of a hundred."""
    found = {name.removeprefix("from_"): {"records": 100, "seconds_ago": ago} for name, ago in taken.items()}
    metrics = {"taken_over_from": found} if found else {}
    return LaneStatus(Fence(number, 2, 7, 1), "host", datetime.now(UTC), datetime.now(UTC), age, metrics)


def settings(table: FakeTable) -> HarvestSettings:
    return replace(
        SETTINGS,
        dialect=made(Seam.DIALECT, FakeDialect(table)),
        affinity=made(Seam.AFFINITY, FakeClusters()),
        publisher=made(Seam.PUBLISHER, FakePlugin()),
    )


def taking_over() -> FakeTable:
    lanes = [lane(0, from_2=30.0, from_3=5000.0), lane(1, age=4.0, from_2=9.0)]
    table = FakeTable(held=lanes, origins=WAITING)
    table.begin_takeover(3, "moving to another building")
    return table


def snapshot(table: FakeTable) -> Snapshot:
    return Snapshot.of(settings(table))


def shown(what: Any) -> list[str]:
    console = Console(width=160, highlight=False)
    with console.capture() as capture:
        console.print(what)
    return [" ".join(line.split()) for line in capture.get().splitlines()]


def test_the_backlog_of_each_cluster_and_what_is_taken_over_in_json():
    data = json.loads(json.dumps(as_data(snapshot(taking_over()))))
    nothing = {"taken_over": 0, "taken_over_seconds_ago": None, "takeover": None}
    moving = {"reason": "moving to another building", "since": "2026-03-01T12:00:00+00:00"}
    assert data["clusters"] == [
        {"cluster": 1, "role": "own", "records": 12, "exact": True, "oldest_seconds": 0.5, **nothing},
        {
            "cluster": 2,
            "role": "other",
            "records": 10_000,
            "exact": False,
            "oldest_seconds": 700.0,
            "taken_over": 200,
            "taken_over_seconds_ago": 13.0,
            "takeover": None,
        },
        {
            "cluster": 3,
            "role": "other",
            "records": 0,
            "exact": True,
            "oldest_seconds": None,
            "taken_over": 100,
            "taken_over_seconds_ago": 5001.0,
            "takeover": moving,
        },
        {"cluster": 7, "role": "orphan", "records": 34, "exact": True, "oldest_seconds": 7200.0, **nothing},
    ]


def test_the_backlog_of_each_cluster_and_what_is_taken_over_as_text():
    lines = shown(as_text(snapshot(taking_over())))
    assert "1 own 12 500ms 0 -" in lines
    assert "2 other 10,000 or more 11m40s 200, the last 13s ago -" in lines
    assert "7 orphan: nobody serves it 34 2h 0 -" in lines
    [third] = [
        line for line in lines if line.startswith("3 other 0 - 100, the last 1h23m ago deliberate since ")
    ]
    assert third.endswith(": moving to another building")


def test_nothing_is_said_of_clusters_where_there_is_one():
    table = FakeTable(held=[lane(0)], origins=WAITING)
    alone = Snapshot.of(replace(settings(table), affinity=made(Seam.AFFINITY, FakePlugin())))
    assert "clusters" not in as_data(alone)
    assert not [line for line in shown(as_text(alone)) if "cluster" in line]
    assert not [line for line in shown(overview([("shop", alone)])) if "takes over" in line]


def test_a_line_for_each_of_several_outboxes_says_whose_records_are_taken_over():
    heading, _, taking, calm = shown(
        overview([("shop", snapshot(taking_over())), ("billing", snapshot(FakeTable(held=[lane(0)])))])
    )[1:5]
    assert heading.endswith("takes over")
    assert taking.endswith("2, 3")
    assert calm.endswith("-")


def examined(table: FakeTable) -> Health:
    return examine(settings(table))


def test_a_takeover_is_a_problem_of_its_own():
    found = examined(FakeTable(held=[lane(0, from_2=30.0), lane(1, from_2=9.0)]))
    [problem] = found.problems
    assert (problem.code, problem.number) == (Code.TAKEN_OVER, 200)
    assert problem.message == (
        "cluster 2's records are taken over by this cluster: 200, the last 10s ago; cluster 2 may be lost"
    )


@pytest.mark.parametrize(("seconds", "healthy"), [(RECENT_SECONDS - 1.0, False), (RECENT_SECONDS, True)])
def test_a_takeover_is_a_problem_for_five_minutes(seconds: float, healthy: bool):
    assert examined(FakeTable(held=[lane(0, from_2=seconds)])).healthy is healthy


def test_a_deliberate_takeover_is_remarked_and_no_problem():
    table = FakeTable(held=[lane(0, from_2=3.0)])
    table.begin_takeover(2, "moving")
    found = examined(table)
    assert found.healthy
    [remark] = found.remarks
    assert (remark.code, remark.number) == (Code.DELIBERATE_TAKEOVER, 100)
    assert remark.message == (
        "cluster 2's records are taken over deliberately (moving): 100 until now; "
        "'outbox takeover --end 2' ends it"
    )
    assert health_as_data(found) == {
        "healthy": True,
        "problems": [],
        "remarks": [{"code": "deliberate-takeover", "message": remark.message, "number": 100}],
    }
    healthy, takeover = ("".join(text for text, _ in line) for line in health_lines(found))
    assert healthy == "healthy"
    assert takeover.startswith("deliberate-takeover: ")


def test_records_of_a_cluster_that_nobody_serves_are_a_problem():
    [problem] = examined(FakeTable(held=[lane(0)], origins=WAITING)).problems
    assert (problem.code, problem.number) == (Code.ORPHANS, 34)
    assert problem.message.startswith("34 records are of cluster 7, which nobody serves")


def test_what_waits_for_another_cluster_is_no_problem():
    assert examined(FakeTable(held=[lane(0)], origins=WAITING[:2])).healthy
