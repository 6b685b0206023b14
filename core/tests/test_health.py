"""The examination of an outbox, on services that say what they are told to."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any

import pytest
from outbox_api import (
    AccessDenied,
    Backlog,
    DriverError,
    Fence,
    LaneStatus,
    OldSnapshot,
    Parked,
    Pause,
    Upkeep,
)
from outbox_core.config import parse
from outbox_core.settings import HarvestSettings
from outbox_core.status.health import Code, Health, Thresholds, examine

NOW = datetime.now(UTC)
FEW = Backlog(3, exact=True, oldest=1.0)
NONE = Parked(0, None)
NOTHING_KNOWN = Upkeep()


def lane(
    number: int = 0,
    *,
    lanes: int = 1,
    age: float | None = 1.0,
    since: datetime = NOW,
    **metrics: float | str,
) -> LaneStatus:
    heartbeat_at = None if age is None else NOW
    return LaneStatus(Fence(number, lanes, 7, 1), "host_1_2", since, heartbeat_at, age, metrics)


@dataclass
class Services:
    """A database and a broker in one: the plugin's driver, its connection, and the publisher."""

    holdings_: Sequence[LaneStatus] = (lane(),)
    backlog_: Backlog = FEW
    parked_: Parked = NONE
    pauses_: Sequence[Pause] = ()
    upkeep_: Upkeep = NOTHING_KNOWN
    database: Callable[[], object] = lambda: None
    broker: Callable[[], object] = lambda: None
    closed: int = field(default=0)
    name: str = "public.outbox"

    def create(self) -> "Services":
        return self

    def watch(self) -> "Services":
        self.database()
        return self

    def members(self) -> list[Any]:
        return []

    def lane_statuses(self) -> list[LaneStatus]:
        return list(self.holdings_)

    def backlog(self, paused: Collection[str] = ()) -> Backlog:
        return self.backlog_

    def parked(self) -> Parked:
        return self.parked_

    def pauses(self) -> Sequence[Pause]:
        return self.pauses_

    def waiting(self) -> dict[str, int]:
        return {"orders": 3, "bills": 2}

    def upkeep(self) -> Upkeep:
        return self.upkeep_

    def close(self) -> None:
        self.closed += 1

    def prepare(self, topics: Sequence[str], partitions: int) -> Sequence[str]:
        assert not topics
        self.broker()
        return ()


def settings(services: Services) -> HarvestSettings:
    made: Any = services
    return replace(parse("harvest: {}", "f.yaml", {}).harvest, dialect=made, publisher=made)


def look(services: Services, **thresholds: Any) -> Health:
    return examine(settings(services), Thresholds(**thresholds))


def codes(found: Health) -> list[Code]:
    return [problem.code for problem in found.problems]


def raising(error: Exception) -> Callable[[], object]:
    def fail() -> None:
        raise error

    return fail


def test_all_is_well():
    services = Services()
    found = examine(settings(services))
    assert found.healthy
    assert found.reachable
    assert found.problems == ()
    assert services.closed == 1


def test_nobody_has_ever_led():
    [problem] = look(Services(holdings_=())).problems
    assert (problem.code, problem.number) == (Code.NO_LEADER, None)
    assert "nobody has ever led" in problem.message


def test_no_lane_speaks():
    [problem] = look(Services(holdings_=[lane(0, lanes=2, age=40.0), lane(1, lanes=2, age=90.0)])).problems
    assert (problem.code, problem.number) == (Code.NO_LEADER, 40.0)
    assert "for 40s" in problem.message
    assert "host_1_2" in problem.message


def test_one_lane_is_silent():
    [problem] = look(Services(holdings_=[lane(0, lanes=2), lane(1, lanes=2, age=90.0)])).problems
    assert (problem.code, problem.number) == (Code.SILENT_LANE, 90.0)
    assert "1 of 2 lanes (1)" in problem.message


def test_the_lane_of_an_earlier_leader_is_not_missed():
    assert look(Services(holdings_=[lane(0), lane(1, lanes=2, age=9000.0)])).healthy


@pytest.mark.parametrize(("age", "healthy"), [(15.0, True), (15.1, False)])
def test_three_beats_may_be_missed(age: float, healthy: bool):
    assert look(Services(holdings_=[lane(age=age)])).healthy is healthy


def test_how_many_beats_may_be_missed_can_be_said():
    assert look(Services(holdings_=[lane(age=24.0)]), silence=5.0).healthy
    assert not look(Services(holdings_=[lane(age=24.0)]), silence=4.0).healthy


def test_nobody_leads_after_a_leader_has_left_but_for_a_moment():
    assert look(Services([lane(age=2.0, left=True)])).healthy, "its successor may be about to lead"
    found = look(Services([lane(age=4.0, left=True)]))
    assert codes(found) == [Code.NO_LEADER]
    assert found.problems[0].message == "nobody leads: the last who did, host_1_2, left 4s ago"
    assert look(Services([lane(age=4.0, left=False)])).healthy, "it rests"
    half = [lane(0, lanes=2, age=4.0, left=True), lane(1, lanes=2)]
    assert codes(look(Services(half))) == [Code.SILENT_LANE]


def test_a_leader_that_has_just_begun_is_given_time_for_its_first_reading():
    since = datetime.now(UTC)
    assert look(Services(holdings_=[lane(age=None, since=since)])).healthy
    long_ago = since - timedelta(minutes=1)
    assert codes(look(Services(holdings_=[lane(age=None, since=long_ago)]))) == [Code.NO_LEADER]


def test_the_oldest_record_is_too_old():
    [problem] = look(Services(backlog_=Backlog(3, exact=True, oldest=61.0))).problems
    assert (problem.code, problem.number) == (Code.OLD_RECORDS, 61.0)
    assert problem.message == "the oldest record is 1m01s old, more than 1m"
    assert look(Services(backlog_=Backlog(3, exact=True, oldest=61.0)), oldest=62.0).healthy
    assert look(Services(backlog_=Backlog(0, exact=True, oldest=None))).healthy


def test_a_key_has_failed_for_long():
    services = Services(
        holdings_=[
            lane(0, lanes=2, blocked_seconds=3.0),
            lane(1, lanes=2, blocked_seconds=75.0, blocked_by="no luck"),
        ]
    )
    [problem] = look(services).problems
    assert (problem.code, problem.number) == (Code.BLOCKED_KEY, 75.0)
    assert problem.message == "a key has been failing for 1m15s, more than 1m: no luck"
    assert look(services, blocked=80.0).healthy


def test_a_topic_that_fails_as_a_whole_is_told_at_once():
    [problem] = look(Services(holdings_=[lane(0, blocked_seconds=1.0, held_topics=2)])).problems
    assert (problem.code, problem.message[:8]) == (Code.BLOCKED_KEY, "2 topics")


def test_what_a_silent_lane_said_of_a_key_is_out_of_date():
    services = Services(holdings_=[lane(0, lanes=2), lane(1, lanes=2, age=99.0, blocked_seconds=75.0)])
    assert codes(look(services)) == [Code.SILENT_LANE]


def test_keys_are_parked():
    [problem] = look(Services(parked_=Parked(2, 7300.0))).problems
    assert (problem.code, problem.number) == (Code.PARKED_KEYS, 2)
    assert problem.message == "2 keys are parked, the first for 2h01m: 'outbox parked list' says why"
    assert look(Services(parked_=Parked(2, 7300.0)), parked=2).healthy


def test_an_old_record_is_told_of_beside_parked_keys_that_are_tolerated():
    found = look(Services(parked_=Parked(1, 70.0), backlog_=Backlog(3, exact=True, oldest=80.0)), parked=1)
    assert codes(found) == [Code.OLD_RECORDS]


def test_a_service_that_is_away_hides_no_other():
    down = raising(DriverError("connection refused", retryable=True))
    found = look(Services(database=down, parked_=Parked(2, 1.0)))
    assert codes(found) == [Code.DATABASE_UNREACHABLE]
    assert not found.reachable
    assert found.problems[0].message == "connection refused"
    found = look(Services(broker=down, parked_=Parked(2, 1.0)))
    assert codes(found) == [Code.PARKED_KEYS, Code.BROKER_UNREACHABLE]
    assert not found.reachable


def test_a_service_that_refuses_is_there():
    found = look(Services(database=raising(AccessDenied("no")), broker=raising(AccessDenied("no"))))
    assert codes(found) == [Code.DATABASE_REFUSES, Code.BROKER_REFUSES]
    assert found.reachable
    assert not found.healthy


def test_what_hangs_is_not_waited_for():
    released = Event()
    try:
        begin = time.monotonic()
        found = look(Services(database=released.wait, broker=released.wait), patience=0.2)
        assert time.monotonic() - begin < 60
        assert codes(found) == [Code.DATABASE_UNREACHABLE, Code.BROKER_UNREACHABLE]
        assert found.problems[0].message == "the database has not answered for 200ms"
    finally:
        released.set()


def test_a_defect_of_a_plugin_is_no_trouble_of_the_outbox():
    with pytest.raises(ZeroDivisionError):
        look(Services(database=lambda: 1 // 0))


@pytest.mark.parametrize(
    ("upkeep", "found"),
    [
        (Upkeep(), []),
        (Upkeep(100_000, snapshot=OldSnapshot("process 9 (psql of user bob)", 3600.0, 5)), []),
        (Upkeep(100_001, snapshot=OldSnapshot("process 9 (psql of user bob)", 59.0, 5)), []),
        (Upkeep(100_001, snapshot=OldSnapshot("process 9 (psql of user bob)", 61.0, 5)), ["old-snapshot"]),
        (Upkeep(100_001, snapshot=OldSnapshot("replication slot 'b'", None, 50_000)), []),
        (Upkeep(100_001, snapshot=OldSnapshot("replication slot 'b'", None, 50_001)), ["old-snapshot"]),
        (Upkeep(100_001, snapshot=OldSnapshot("somebody")), []),
        (Upkeep(1_000_000), []),
        (Upkeep(1_000_001), ["dead-rows"]),
    ],
)
def test_dead_rows_are_a_problem_if_somebody_keeps_them_or_they_are_very_many(upkeep, found):
    assert codes(look(Services(upkeep_=upkeep))) == found


def test_the_owner_of_an_old_snapshot_is_named():
    held = Upkeep(230_412, snapshot=OldSnapshot("process 9 (psql of user bob)", 62.0, 7))
    [problem] = look(Services(upkeep_=held), dead=230_411, snapshot=61.0).problems
    said, _, owner = problem.message.partition(": ")
    assert said == "about 230,412 dead rows cannot be removed"
    assert owner == "process 9 (psql of user bob) has kept an old snapshot for 1m02s"
    assert problem.number == 62.0
    assert look(Services(upkeep_=held), dead=230_412).healthy


def test_what_a_lane_cannot_remove_in_time_is_a_problem():
    said: dict[str, Any] = {"overdue": "kept records cannot be removed in time: no right"}
    [problem] = look(Services(holdings_=[lane(0, lanes=2, **said), lane(1, lanes=2)])).problems
    assert (problem.code, problem.message) == (Code.OVERDUE, said["overdue"])


def test_a_pause_is_a_remark_and_a_problem_once_it_has_lasted_for_long_without_an_end():
    since = NOW - timedelta(hours=2)
    endless = Pause("orders", "ann at host", "partitions", since, None, 7200.0)
    ending = Pause("bills", "ann at host", "", since, NOW + timedelta(hours=9), 7200.0)
    health = look(Services(pauses_=(endless, ending)))
    assert codes(health) == [Code.LONG_PAUSE]
    assert [each.code for each in health.remarks] == [Code.PAUSED]
    said = health.problems[0].message
    assert "ann at host has paused topic orders for 2h (partitions): 3 records wait" in said
    assert "some of it may still be in flight" in said
    assert "'outbox resume --topic orders' ends it" in said
    assert look(Services(pauses_=(endless,)), paused=8000).healthy


def test_nothing_is_too_old_while_the_whole_outbox_is_paused():
    whole = Pause("", "ann", "", NOW, None, 5.0)
    old = Backlog(5, exact=True, oldest=900.0)
    assert codes(look(Services(backlog_=old))) == [Code.OLD_RECORDS]
    health = look(Services(backlog_=old, pauses_=(whole,)))
    assert health.healthy
    assert "ann has paused the whole outbox for 5s: 5 records wait" in health.remarks[0].message


def test_a_paused_topic_drives_no_terminal():
    paused = Pause("a\x1b[2J", "ann", "", NOW, None, 5.0)
    [remark] = look(Services(pauses_=(paused,))).remarks
    assert "\x1b" not in remark.message
    assert r"--topic a\x1b[2J" in remark.message


def test_what_a_lane_sends_in_vain_names_the_broker() -> None:
    def beats(seconds: float, reason: str = "") -> LaneStatus:
        return replace(lane(), metrics={"unanswered": {"seconds": seconds, "reason": reason}})

    [problem] = look(Services([beats(21.4, "Local: Message timed out (_MSG_TIMED_OUT)")])).problems
    assert (problem.code, problem.number) == (Code.BROKER_UNREACHABLE, 21.4)
    assert problem.message == (
        "the broker has acknowledged nothing to the leader for 21s: Local: Message timed out (_MSG_TIMED_OUT)"
    )
    assert look(Services([beats(5.0)])).healthy
    silent = replace(beats(99.0), age=90.0)
    assert Code.BROKER_UNREACHABLE not in codes(look(Services([silent])))
