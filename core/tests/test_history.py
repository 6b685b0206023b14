"""The last hour of an outbox: its points, and what happened between two looks at it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from outbox_api import Backlog, Fence, LaneStatus, OldSnapshot, Parked, Takeover, Upkeep
from outbox_core.status.clusters import ClusterState, Role
from outbox_core.status.history import History
from outbox_core.status.history_events import HistoryEvent
from outbox_core.status.points import Point
from outbox_core.status.snapshot import Snapshot

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def later(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def lane(number: int = 0, lanes: int = 1, token: int = 7, **given: Any) -> LaneStatus:
    """A lane that is well, but for what is given."""
    holder, age, since = given.pop("holder", "alpha"), given.pop("age", 1.0), given.pop("since", NOON)
    heard = None if age is None else given.pop("heartbeat_at", NOON)
    metrics = {"purged_per_second": 50.0} | given
    return LaneStatus(Fence(number, lanes, token, 1), holder, since, heard, age, metrics if heard else {})


def state(*lanes: LaneStatus, records: int = 0, oldest: float | None = None, parked: int = 0) -> Snapshot:
    return Snapshot("outbox", Backlog(records, True, oldest), Parked(parked, None), lanes, 15.0)


def told(events: Sequence[HistoryEvent]) -> list[tuple[str, str]]:
    return [(str(each.code), each.text) for each in events]


def between(before: Snapshot, after: Snapshot) -> list[tuple[str, str]]:
    history = History()
    assert history.add(NOON, before) == ()
    happened = history.add(later(10), after)
    assert history.events() == happened
    return told(happened)


def test_a_leader_and_its_successor():
    history = History()
    history.add(NOON, state())
    first = state(lane(heartbeat_at=later(8)))
    assert told(history.add(later(10), first)) == [("leader-changed", "alpha leads")]
    second = lane(holder="beta", token=9, age=None, since=later(15))
    assert told(history.add(later(20), state(second))) == [
        ("leader-changed", "the leader changed from alpha to beta, after at most 7s of silence")
    ]
    assert history.add(later(30), state(replace(second, age=2.0, metrics={"silence_before": 5.5}))) == ()


@pytest.mark.parametrize(
    ("holder", "said"),
    [
        ("beta", "the leader changed from alpha to beta, after 5.5s of silence"),
        ("alpha", "alpha leads anew, after 5.5s of silence"),
    ],
)
def test_the_silence_that_the_new_leader_found(holder: str, said: str):
    after = state(lane(holder=holder, token=9, silence_before=5.5))
    assert between(state(lane()), after) == [("leader-changed", said)]


def test_an_operator_raises_the_fence_and_the_leader_takes_it_anew():
    history = History()
    history.add(NOON, state(lane()))
    raised = state(lane(token=8, holder="operator ann at desk", age=None, since=later(5)))
    assert told(history.add(later(10), raised)) == [
        ("fence-raised", "operator ann at desk has raised the fence")
    ]
    again = state(lane(token=9, age=None, since=later(15)))
    assert told(history.add(later(20), again)) == [("leader-changed", "alpha leads anew")]


def test_lanes_fall_silent_and_are_heard_again():
    well = state(*(lane(number, 3) for number in range(3)))
    one = state(lane(0, 3), lane(1, 3, age=16.0), lane(2, 3))
    every = state(*(lane(number, 3, age=20.0) for number in range(3)))
    assert between(well, one) == [("lanes-silent", "lane 1 of 3 is silent")]
    assert between(one, every) == [("lanes-silent", "lanes 0, 2 of 3 are silent: nobody leads")]
    assert between(every, well) == [("lanes-heard", "all 3 lanes are heard again")]
    assert between(state(lane()), state(lane(age=16.0))) == [
        ("lanes-silent", "the only lane is silent: nobody leads")
    ]
    many = [lane(number, 20) for number in range(20)]
    assert between(state(*many), state(*(replace(each, age=99.0) for each in many[:9]), *many[9:])) == [
        ("lanes-silent", "9 of 20 lanes are silent")
    ]


def test_a_lane_that_never_writes_a_heartbeat_falls_silent():
    history, mute = History(), state(lane(age=None, since=NOON))
    assert [told(history.add(later(seconds), mute)) for seconds in (5, 15, 16, 30)] == [
        [],
        [],
        [("lanes-silent", "the only lane is silent: nobody leads")],
        [],
    ]


def test_keys_are_parked_and_freed():
    assert between(state(), state(parked=1)) == [("keys-parked", "1 key was parked")]
    assert between(state(parked=1), state(parked=3)) == [
        ("keys-parked", "2 keys were parked, 3 are parked now")
    ]
    assert between(state(parked=3), state(parked=1)) == [("keys-freed", "2 keys were freed, 1 is parked now")]
    assert between(state(parked=1), state()) == [("keys-freed", "1 key was freed, none is parked now")]


def test_a_deliberate_takeover():
    other = ClusterState(cluster=2, role=Role.OTHER)
    taken = replace(other, takeover=Takeover(2, "site\nlost", NOON))
    before, after = replace(state(), clusters=[other]), replace(state(), clusters=[taken])
    assert between(before, after) == [("takeover-began", "the takeover of cluster 2 began: site lost")]
    assert between(after, before) == [("takeover-ended", "the takeover of cluster 2 ended")]


def test_problems_begin_and_end_without_flapping():
    history, well, late = History(), state(lane()), state(lane(), records=9, oldest=61.0)
    history.add(NOON, well)
    began = ("problem-began", "the oldest record is 1m01s old, more than 1m")
    assert told(history.add(later(10), late)) == [began]
    assert [history.add(later(seconds), look) for seconds, look in [(20, well), (30, late), (40, well)]] == [
        ()
    ] * 3
    assert history.add(later(59), well) == ()
    assert told(history.add(later(60), well)) == [("problem-ended", "the oldest record is no longer too old")]


def test_the_other_problems():
    orphans = replace(state(), clusters=[ClusterState(cluster=5, role=Role.ORPHAN, records=3)])
    dead = replace(state(), upkeep=Upkeep(dead=2_000_000))
    kept = replace(state(), upkeep=Upkeep(dead=2_000_000, snapshot=OldSnapshot("a report", 99.0)))
    taken = replace(
        state(), clusters=[ClusterState(cluster=2, role=Role.OTHER, taken_over=4, seconds_ago=1.0)]
    )
    for sick in (orphans, dead, kept, taken, state(lane(blocked_seconds=61.0))):
        history = History()
        history.add(NOON, replace(sick, clusters=None, upkeep=Upkeep(), lanes=[lane()] if sick.lanes else []))
        [began] = history.add(later(10), sick)
        assert began.code == "problem-began"
        [ended] = history.add(later(40), state(*([lane()] if sick.lanes else [])))
        assert ended.code == "problem-ended"


def test_problems_of_the_first_look_are_told_when_they_end():
    history = History()
    assert history.add(NOON, state(oldest=99.0, records=1, parked=3)) == ()
    assert [each.code for each in history.add(later(40), state(parked=3))] == ["problem-ended"]


def test_a_database_is_away_and_back():
    history = History()
    history.add(NOON, state(lane()))
    away = history.failed(later(10), "cannot read the fence:\n  connection refused")
    assert told(away) == [
        ("database-away", "the database cannot be queried: cannot read the fence: connection refused")
    ]
    assert history.failed(later(20), "connection refused") == ()
    back = history.add(later(52), state(lane(token=9, holder="beta", silence_before=8.0)))
    assert told(back) == [
        ("database-back", "the database can be queried again, after 42s"),
        ("leader-changed", "the leader changed from alpha to beta, after 8s of silence"),
    ]
    assert [point.known for point in history.points()] == [True, False, False, True]


def test_a_long_error_is_cut():
    [away] = History().failed(NOON, "x" * 9999)
    assert len(away.text) < 300


def test_looks_nearby_become_one_point_with_the_greatest_figures():
    history = History()
    for second, records in enumerate([5, 9, 3, 1, 1, 1, 1, 1, 1, 2, 4]):
        history.add(later(second), state(lane(), records=records, oldest=None if records == 9 else 2.0))
    assert history.points() == (Point(NOON, 9, 2.0, 50.0, failed=0), Point(later(9), 4, 2.0, 50.0, failed=0))


def test_looks_ten_seconds_apart_stay_points_of_their_own():
    history = History()
    for number in range(5):
        history.add(later(number * 10 - number % 2 * 0.5), state())
    assert len(history.points()) == 5


def test_looks_that_are_missing_leave_a_gap():
    history = History()
    for second in (0, 30, 61):
        history.add(later(second), state())
    assert [(point.at, point.known) for point in history.points()] == [
        (later(0), True),
        (later(30), True),
        (later(40), False),
        (later(61), True),
    ]


def test_rare_looks_leave_no_gaps():
    history = History(interval=60.0)
    for minute in range(5):
        history.add(later(minute * 60), state())
    assert all(point.known for point in history.points())


def test_points_move_back_with_the_clock():
    history = History()
    for second in (0, 10, 20):
        history.add(later(3600 + second), state(records=second))
    history.add(NOON, state(records=30))
    assert [(point.at, point.records) for point in history.points()] == [
        (later(-20), 0),
        (later(-10), 10),
        (later(0), 30),
    ]


LOOKS = st.lists(
    st.tuples(
        st.one_of(st.floats(0, 30), st.floats(-5000, 10_000)),
        st.one_of(
            st.none(),
            st.builds(
                state,
                st.builds(
                    lane,
                    token=st.integers(1, 3),
                    holder=st.sampled_from(["alpha", "beta", "operator ann at desk"]),
                    age=st.one_of(st.none(), st.floats(-10, 100)),
                    silence_before=st.one_of(st.none(), st.floats(-10, 100)),
                    purged_per_second=st.floats(-5, 1e6),
                ),
                records=st.integers(0, 10**9),
                oldest=st.one_of(st.none(), st.floats(-10, 1000)),
                parked=st.integers(0, 3),
            ),
        ),
    ),
    max_size=80,
)


@given(LOOKS)
def test_whatever_clocks_and_outboxes_do(looks: list[tuple[float, Snapshot | None]]):
    history, now, all_told = History(), NOON, list[HistoryEvent]()
    for step, snapshot in looks:
        now += timedelta(seconds=step)
        all_told += history.failed(now, "down") if snapshot is None else history.add(now, snapshot)
        points = history.points()
        assert points[0].at <= points[-1].at <= now
        assert now - points[0].at <= timedelta(hours=1)
        assert all(one.at < other.at for one, other in pairwise(points))
        for point in points:
            assert (point.rate is None) == (point.records is None) == (not point.known)
            assert (point.records or 0) >= 0
            assert (point.oldest or 0.0) >= 0
            assert (point.rate or 0.0) >= 0
    assert list(history.events()) == all_told[-50:]
    assert all("\n" not in each.text and not each.text.endswith(".") for each in all_told)
    away = [each.code for each in all_told if each.code.startswith("database-")]
    assert away == (["database-away", "database-back"] * len(away))[: len(away)]


@settings(max_examples=30)
@given(st.floats(0.1, 30), st.integers(1, 5))
def test_an_hour_of_looks_is_bounded(interval: float, hours: int):
    history, looked = History(), 0.0
    while looked < hours * 3600 and looked < interval * 2000:
        history.add(later(looked), state(lane()))
        looked += interval
    assert len(history.points()) <= 401
