"""The state machine against a world that fails at random, and its rules one by one."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from outbox_api import Changed, Failure, MarkedRecord
from outbox_core.delivery.at_least_once import PURGE_SECONDS, MarkPurgeReset
from outbox_core.delivery.batch_size import BatchSize
from outbox_core.delivery.commands import Mark, Park, Purge, Reset
from outbox_core.delivery.held import MAX_EXCLUDED_KEYS
from outbox_core.settings import Failures, Limits

from .deciding import Refresh, ReportFailures, Send, decide, wake_at

LIMITS = Limits(max_in_flight_records=4, send_buffer=4, mark_query_records=5)
FAILURES = Failures(first_backoff=0.1, longest_backoff=0.5, park_after=3)
CLUSTER = 10**6
"""Each cluster's ids begin at a multiple of this."""


def leader_ids():
    count = 0
    while True:
        count += 1
        yield UUID(int=count)


def machine(limits=LIMITS, failures=FAILURES, ages=()):
    return MarkPurgeReset(limits, failures, leader_ids().__next__, lambda: 0.5, ages)


def record(number, key="k", fault=None):
    return MarkedRecord(number, "topic", key, "value", fault=fault)


def only(commands, kind):
    (found,) = [command for command in commands if isinstance(command, kind)]
    return found


def sent(commands):
    return [record.id for command in commands if isinstance(command, Send) for record in command.records]


def test_a_record_is_marked_sent_purged_and_the_next_mark_follows():
    mpr = machine()
    mark = only(decide(mpr, 0), Mark)
    assert mark == Mark(mpr.leader_id, 5, LIMITS.max_lane_bytes // 2)
    mpr.marked(0, [record(1)])
    assert sent(decide(mpr, 0)) == [1]
    assert mpr.in_flight == 1
    mpr.delivered(0, [record(1)])
    commands = decide(mpr, PURGE_SECONDS)
    assert only(commands, Purge) == Purge(mpr.leader_id, [1])
    only(commands, Mark)
    mpr.purged(0, Changed(1))
    mpr.marked(0, [])
    assert mpr.in_flight == 0
    assert mpr.drained


def test_the_next_record_of_a_key_waits_for_the_purge_and_holds_up_nobody_else():
    mpr = machine()
    decide(mpr, 0)
    mpr.marked(0, [record(1, "a"), record(2, "a"), record(3, "b")])
    assert sent(decide(mpr, 0)) == [1, 3]
    mpr.delivered(0, [record(1, "a")])
    purge = decide(mpr, 0)
    assert sent(purge) == [], "acknowledged is not enough: the purge must be durable"
    mpr.purged(0, Changed(1))
    assert sent(decide(mpr, 0)) == [2]


def test_the_throttle_bounds_what_is_in_flight_and_what_is_marked():
    mpr = machine()
    marked = 0
    for _ in range(10):
        for command in decide(mpr, 0):
            if isinstance(command, Mark):
                records = [record(marked + n, f"k{marked + n}") for n in range(command.limit)]
                marked += len(records)
                mpr.marked(0, records)
    assert mpr.in_flight == LIMITS.max_in_flight_records
    assert marked <= LIMITS.max_in_flight_records + LIMITS.send_buffer


def test_a_failed_record_is_held_with_its_successors_and_then_taken_back():
    mpr = machine()
    decide(mpr, 0)
    mpr.marked(0, [record(1, "a"), record(2, "a"), record(3, "b")])
    decide(mpr, 0)
    failure = Failure(record(1, "a"), "timed out", retryable=True)
    mpr.failed([failure])
    commands = decide(mpr, 1)
    assert only(commands, ReportFailures).failures == [failure]
    assert mpr.in_flight == 1, "the key holds up nobody"
    assert mpr.scoreboard.waiting == 0
    only(commands, Mark)
    mpr.marked(1, [record(4, "a"), record(5, "c")])
    assert sent(decide(mpr, 1)) == [5], "what comes later for the key is held with it"
    over = mpr.scoreboard.held.holds["a"].until
    assert only(decide(mpr, over), Reset).ids == [1, 2, 4]
    assert not any(isinstance(command, Mark) for command in decide(mpr, over + 1)), "no mark meets a reset"
    mpr.reset_done(over + 1)
    only(decide(mpr, over + 1), Mark)
    mpr.marked(over + 1, [record(1, "a"), record(2, "a"), record(4, "a")])
    assert sent(decide(mpr, over + 1)) == [1]


def test_holds_grow_with_every_failure_and_end_with_a_delivery():
    mpr = machine()
    now, pauses = 0.0, []
    for _ in range(4):
        only(decide(mpr, now), Mark)
        mpr.marked(now, [record(1)])
        decide(mpr, now)
        mpr.failed([Failure(record(1), "timed out", retryable=True)])
        only(decide(mpr, now), ReportFailures)
        hold = mpr.scoreboard.held.holds["k"]
        assert mpr.scoreboard.held.blocked(now)[:2] == (1, now)
        pauses.append(hold.until - now)
        now = hold.until
        for command in decide(mpr, now):
            if isinstance(command, Mark):
                mpr.marked(now, [])
        only(decide(mpr, now), Reset) if mpr._finishing is None else None
        mpr.reset_done(now)
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.5])
    only(decide(mpr, now), Mark)
    mpr.marked(now, [record(1)])
    assert sent(decide(mpr, now)) == [1]
    mpr.delivered(now, [record(1)])
    only(decide(mpr, now + PURGE_SECONDS), Purge)
    mpr.purged(now, Changed(1))
    assert mpr.scoreboard.held.holds == {}


def refuse(mpr, now, *records, retryable=False):
    """Has the first of some marked records sent and refused, and the hold of its key end; returns when."""
    only(decide(mpr, now), Mark)
    mpr.marked(now, list(records))
    assert sent(decide(mpr, now)) == [records[0].id]
    mpr.failed([Failure(records[0], "too large", retryable=retryable)])
    only(decide(mpr, now), ReportFailures)
    return max(now, mpr.scoreboard.held.holds[records[0].key].until)


def take_back(mpr, now):
    """Answers the mark that may be out, and the reset that follows it."""
    if mpr._mark is not None:
        mpr.marked(now, [])
    only(decide(mpr, now), Reset)
    mpr.reset_done(now)


def test_a_key_is_parked_when_its_record_was_refused_as_often_as_the_policy_permits():
    mpr = machine()
    now = 0.0
    for _ in range(2):
        now = refuse(mpr, now, record(1), record(2))
        take_back(mpr, now)
        now += 0.01  # so many keys are taken back in a second
    assert refuse(mpr, now, record(1), record(2)) == now, "it is not held once more"
    park = only(decide(mpr, now), Park)
    assert park.leader_id == mpr.leader_id
    assert [(poison.id, poison.reason, poison.attempts) for poison in park.poisons] == [(1, "too large", 3)]
    assert park.ids == [1, 2]
    assert not any(isinstance(command, Mark) for command in decide(mpr, now)), "no mark meets a park"
    mpr.park_done(now, Changed(1))
    assert mpr.scoreboard.held.holds == {}
    assert mpr.scoreboard.held.policy.parked == 1
    only(decide(mpr, now), Mark)


def test_a_failure_that_may_pass_parks_no_key_unless_the_policy_says_so():
    mpr = machine()
    now = 0.0
    for _ in range(20):
        now = refuse(mpr, now, record(1), retryable=True)
        take_back(mpr, now)
    mpr = machine(failures=Failures(park_retryable_after=1))
    now = refuse(mpr, 0.0, record(1), retryable=True)
    only(decide(mpr, now), Park)


def test_no_more_keys_are_parked_than_the_policy_permits():
    mpr = machine(failures=Failures(park_after=1, most_parked_keys=1))
    mpr.scoreboard.held.policy.parked = 1
    now = refuse(mpr, 0.0, record(1))
    assert now > 0, "it is held and tried again instead"
    take_back(mpr, now)


def test_keys_that_are_about_to_be_parked_count_among_the_most():
    mpr = machine(failures=Failures(park_after=1, most_parked_keys=3))
    only(decide(mpr, 0), Mark)
    rows = [record(number, f"k{number}") for number in range(1, 5)]
    mpr.marked(0, rows)
    assert len(sent(decide(mpr, 0))) == 4
    mpr.failed([Failure(row, "no such topic", retryable=False) for row in rows])
    decide(mpr, 0)
    assert sum(hold.parking for hold in mpr.scoreboard.held.holds.values()) == 3


def test_a_count_of_the_parked_that_was_asked_for_before_a_park_does_not_undo_it():
    mpr = machine(failures=Failures(park_after=1))
    policy = mpr.scoreboard.held.policy
    asked_at = policy.done
    now = refuse(mpr, 0.0, record(1))
    only(decide(mpr, now), Park)
    mpr.park_done(now, Changed(1))
    policy.counted(0, asked_at)
    assert policy.parked == 1


def test_a_key_that_waits_to_be_parked_keeps_nobody_awake_while_a_mark_is_out():
    mpr = machine(failures=Failures(park_after=1))
    decide(mpr, 0)
    mpr.marked(0, [record(1)])
    decide(mpr, 0)
    only(decide(mpr, 0.1), Mark)
    mpr.failed([Failure(record(1), "too large", retryable=False)])
    decide(mpr, 0.1)
    assert decide(mpr, 0.1) == []
    assert wake_at(mpr) > 0.1


def test_a_park_of_unknown_outcome_is_repeated_and_all_is_marked_anew():
    mpr = machine(failures=Failures(park_after=1))
    now = refuse(mpr, 0.0, record(1), record(2))
    park = only(decide(mpr, now), Park)
    mpr.finishing_unknown(now)
    assert only(decide(mpr, now + 1), Park) == park
    mpr.park_done(now + 1, Changed(0))
    assert only(decide(mpr, now + 1), Refresh).leader_id == UUID(int=2)


def test_a_park_that_finds_its_record_changed_has_all_marked_anew():
    mpr = machine(failures=Failures(park_after=1))
    now = refuse(mpr, 0.0, record(1))
    only(decide(mpr, now), Park)
    mpr.park_done(now, Changed(0))
    assert mpr.scoreboard.held.policy.parked == 0
    only(decide(mpr, now), Refresh)


def test_what_a_remark_made_us_forget_is_marked_again_before_it_is_parked():
    mpr = machine(failures=Failures(park_after=1))
    now = refuse(mpr, 0.0, record(1), record(2))
    assert only(decide(mpr, now, leading=False), Reset).ids == []
    mpr.reset_done(now)
    now = refuse(mpr, now + 0.01, record(1), record(2))
    assert only(decide(mpr, now), Park).ids == [1, 2]


def test_a_faulty_row_is_never_sent_and_holds_its_key_only():
    mpr = machine()
    decide(mpr, 0)
    mpr.marked(0, [record(1, "a", fault="header arrays differ in length"), record(2, "a"), record(3, "b")])
    commands = decide(mpr, 0)
    assert sent(commands) == [3]
    assert [failure.reason for failure in only(commands, ReportFailures).failures] == [
        "header arrays differ in length"
    ]
    assert mpr.scoreboard.held.holds["a"].incurable == 1


@pytest.mark.parametrize("fault", [None, "header arrays differ in length"])
def test_many_failing_keys_stop_nobody(fault):
    """However many rows of failing keys lie at the head, they take no room from others."""
    mpr = machine(Limits(), Failures(first_backoff=1))
    waiting = [record(number, f"bad-{number}", fault=fault) for number in range(15_000)]
    waiting = [row._replace(topic="bad") for row in waiting] + [record(50_000, "good")]
    got: list[int] = []
    taken, parked = 0, 0
    now = 0.0
    while 50_000 not in got and now < 100:
        now += 0.01
        for command in decide(mpr, now):
            if isinstance(command, Mark):
                rows = [row for row in waiting if row.topic not in command.excluded_topics][: command.limit]
                ids = {row.id for row in rows}
                waiting = [row for row in waiting if row.id not in ids]
                taken += len(rows)
                mpr.marked(now, rows)
            elif isinstance(command, Send):
                got += [each.id for each in command.records]
                bad = [each for each in command.records if each.topic == "bad"]
                mpr.failed([Failure(each, "no such topic", retryable=False) for each in bad])
            elif isinstance(command, Park):
                parked += len(command.poisons)
                mpr.park_done(now, Changed(len(command.poisons)))
    assert 50_000 in got
    assert taken < 14_000 or fault, "the topic is held as a whole: its rows stay in the outbox"
    assert parked <= (10_000 if fault else 1000)


def test_a_held_topic_is_tried_again_and_flows_once_a_record_of_it_is_delivered():
    mpr = machine(Limits(), Failures(first_backoff=1))
    only(decide(mpr, 0), Mark)
    rows = [record(number, f"k{number}") for number in range(100)]
    mpr.marked(0, rows)
    only(decide(mpr, 0), Send)
    mpr.failed([Failure(row, "no such topic", retryable=False) for row in rows])
    assert only(decide(mpr, 0), ReportFailures).held_topics == ["topic"]
    mpr.marked(0, [])  # it was out before
    assert only(decide(mpr, 0.5), Mark).excluded_topics == ("topic",)
    mpr.marked(0.5, [])
    take_back(mpr, 2)
    assert only(decide(mpr, 2), Mark).excluded_topics == ()
    mpr.marked(2, [record(200, "other")])
    only(decide(mpr, 2), Send)
    mpr.delivered(2, [record(200, "other")])
    only(decide(mpr, 3), Purge)
    assert mpr.topics.held
    mpr.purged(3, Changed(1))
    assert not mpr.topics.held


@pytest.mark.parametrize("deleted", [True, False])
def test_a_held_topic_is_forgotten_once_its_rows_are_gone_and_not_before(deleted):
    mpr = machine(Limits(), Failures(first_backoff=1, longest_backoff=8))
    rows = [record(number, f"k{number}") for number in range(101)]
    told: list[str] = []
    for now in range(300):
        for command in decide(mpr, now):
            if isinstance(command, Mark):
                leaves_out = command.excluded_topics or (deleted and now > 0)
                rows, marked = (rows, []) if leaves_out else ([], rows)
                mpr.marked(now, marked)
            elif isinstance(command, Send):
                mpr.failed([Failure(each, "no such topic", retryable=False) for each in command.records])
            elif isinstance(command, Reset):
                rows += [record(number, f"k{number}") for number in command.ids]
                mpr.reset_done(now)
            elif isinstance(command, ReportFailures):
                told += command.held_topics
    assert told == ["topic"], "it is held once"
    assert ("topic" in mpr.topics.held) is not deleted


def test_a_mark_of_unknown_outcome_leads_to_a_new_leader_id_once_all_has_settled():
    mpr = machine()
    first = mpr.leader_id
    decide(mpr, 0)
    mpr.marked(0, [record(1, "a"), record(2, "a")])
    decide(mpr, 0)
    only(decide(mpr, 1), Mark)
    mpr.mark_unknown(1)
    assert decide(mpr, 1) == [], "one record is still in flight"
    mpr.delivered(0, [record(1, "a")])
    assert only(decide(mpr, 10), Purge) == Purge(first, [1])
    mpr.purged(10, Changed(1))
    commands = decide(mpr, 10)
    assert only(commands, Refresh).leader_id == mpr.leader_id != first
    assert only(commands, Mark).leader_id == mpr.leader_id
    assert sent(commands) == [], "record 2 was forgotten: it is marked anew"


def test_a_purge_of_unknown_outcome_is_repeated_after_a_growing_pause():
    mpr = machine()
    decide(mpr, 0)
    mpr.marked(0, [record(1)])
    decide(mpr, 0)
    mpr.delivered(0, [record(1)])
    mpr.drain()
    command = only(decide(mpr, 0), Purge)
    now = 0.0
    for pause in (0.5, 1.0, 2.0, 4.0, 5.0, 5.0):
        mpr.finishing_unknown(now)
        assert decide(mpr, now + pause * 0.99) == []
        now += pause
        assert only(decide(mpr, now), Purge) == command
    mpr.purged(now, Changed(1))
    assert mpr.drained


def test_a_repeated_purge_that_finds_fewer_rows_lets_no_successor_pass():
    """Its first try may have deleted the row; or a crash of the database has taken away its mark."""
    mpr = machine()
    decide(mpr, 0)
    mpr.marked(0, [record(1), record(2)])
    decide(mpr, 0)
    mpr.delivered(0, [record(1)])
    only(decide(mpr, 0), Purge)
    mpr.finishing_unknown(0)
    only(decide(mpr, 1), Purge)
    mpr.purged(1, Changed(0))
    mpr.marked(1, [record(3)])  # of the mark that was out meanwhile
    commands = decide(mpr, 1)
    assert sent(commands) == []
    only(commands, Refresh)
    mpr.marked(1, [record(1), record(2)])
    assert sent(decide(mpr, 1)) == [1]


def test_a_purge_that_finds_fewer_rows_than_it_should_has_all_marked_anew():
    mpr = machine()
    decide(mpr, 0)
    mpr.marked(0, [record(1)])
    decide(mpr, 0)
    mpr.delivered(0, [record(1)])
    commands = decide(mpr, PURGE_SECONDS)
    mpr.marked(PURGE_SECONDS, [])
    only(commands, Purge)
    mpr.purged(1, Changed(0))
    only(decide(mpr, 1), Refresh)


def test_a_reset_of_unknown_outcome_is_repeated_and_all_is_marked_anew():
    mpr = machine()
    decide(mpr, 0)
    mpr.marked(0, [record(1)])
    decide(mpr, 0)
    mpr.failed([Failure(record(1), "timed out", retryable=True)])
    decide(mpr, 0)
    reset = only(decide(mpr, 1), Reset)
    mpr.finishing_unknown(1)
    assert only(decide(mpr, 2), Reset) == reset
    mpr.reset_done(2)
    assert only(decide(mpr, 2), Refresh).leader_id == UUID(int=2)


def test_without_leadership_nothing_is_marked_or_sent_and_all_is_marked_anew_afterwards():
    mpr = machine()
    decide(mpr, 0)
    mpr.marked(0, [record(1), record(2, "b")])
    assert decide(mpr, 0, leading=False) == []
    commands = decide(mpr, 1)
    assert only(commands, Refresh).leader_id == UUID(int=2)
    assert only(commands, Mark).leader_id == UUID(int=2)


def test_a_queue_that_stands_still_for_too_long_is_marked_anew():
    mpr = machine()
    decide(mpr, 0)
    mpr.marked(0, [record(1), record(2)])
    decide(mpr, 0)
    late = LIMITS.queue_timeout + 1
    decide(mpr, late)
    mpr.delivered(0, [record(1)])
    decide(mpr, late)
    mpr.purged(late, Changed(1))
    assert only(decide(mpr, late), Refresh)


def test_a_draining_machine_waits_for_no_hold():
    mpr = machine()
    decide(mpr, 0)
    mpr.marked(0, [record(1, "a"), record(2, "b")])
    decide(mpr, 0)
    mpr.failed([Failure(record(1, "a"), "away", retryable=True)])
    decide(mpr, 0)
    mpr.drain()
    later = mpr.scoreboard.held.next_end() + 1
    decide(mpr, later)
    assert not mpr.drained
    assert wake_at(mpr) > later, "or its lane spins until the broker answers"


def test_a_drained_machine_settles_what_is_in_flight_and_starts_nothing():
    mpr = machine()
    decide(mpr, 0)
    mpr.marked(0, [record(1), record(2)])
    decide(mpr, 0)
    mpr.drain()
    assert decide(mpr, 0) == []
    assert not mpr.drained
    mpr.delivered(0, [record(1)])
    only(decide(mpr, 0), Purge)
    mpr.purged(0, Changed(1))
    assert mpr.drained
    assert decide(mpr, 100) == []


def test_an_empty_outbox_is_asked_less_and_less_often():
    size = BatchSize(0.01, 0.1, 1000)
    now, pauses = 0.0, []
    for _ in range(200):
        size.marked(now, full=False, empty=True)
        pauses.append(size.due - now)
        now = size.due
    assert pauses[:4] == pytest.approx([0.01, 0.02, 0.04, 0.05])
    assert pauses == pytest.approx(sorted(pauses))
    assert sum(pauses[:60]) < 5
    assert pauses[-1] == pytest.approx(0.1)


def test_large_records_bound_what_is_marked():
    """Two marks of half the bound each, however the bytes are spread over values and headers."""
    mpr = machine(Limits(max_in_flight_records=1000, send_buffer=1000, max_lane_bytes=40_000))
    marked = 0
    for now in range(100):
        for command in decide(mpr, now):
            if isinstance(command, Mark):
                assert command.max_bytes == 20_000
                ids = range(marked, marked + min(command.limit, 19))
                rows = [MarkedRecord(n, "t", f"k{n}", "x" * 500, [("name", "y" * 496)]) for n in ids]
                marked += len(rows)
                mpr.marked(now, rows)
    assert marked == 38
    assert 38_000 < mpr.scoreboard.bytes <= 40_000


def test_an_id_that_is_given_out_anew_while_its_record_is_in_flight_confuses_no_count():
    board = machine().scoreboard
    board.admit(0, [record(1), record(2, "more")])
    board.admit(0, [record(1, "other")])
    assert len(board.take(9)[0]) == 3
    board.release(0, [record(1), record(2, "more")])
    board.release(0, [record(1, "other")])
    assert (board.bytes, board.waiting) == (0, 0)


def test_a_mark_that_was_cut_short_by_its_bytes_is_followed_by_another_at_once():
    mpr = machine(Limits(max_lane_bytes=20_000))
    only(decide(mpr, 0), Mark)
    mpr.marked(0, [MarkedRecord(1, "t", "k", "x" * 6000)])
    only(decide(mpr, 0), Mark)


def test_a_key_with_many_records_waiting_is_left_out_of_marks_until_half_of_them_are_gone():
    mpr = machine(Limits(max_in_flight_records=80, send_buffer=80, mark_query_records=40))
    assert only(decide(mpr, 0), Mark).excluded_keys == ()
    mpr.marked(0, [record(number, "hot") for number in range(1, 41)])
    commands = decide(mpr, 0)
    assert sent(commands) == [1]
    assert only(commands, Mark) == Mark(mpr.leader_id, 40, LIMITS.max_lane_bytes // 2, ("hot",))
    mpr.marked(0, [record(50, "cold")])
    assert sent(decide(mpr, 1)) == [50], "the others flow"
    now = 1.0
    for number in range(1, 40):
        mpr.delivered(now, [record(number, "hot")])
        now += 2
        decide(mpr, now)
        mpr.purged(now, Changed(1))
        mpr.marked(now, [])
        commands = decide(mpr, now + 1)
        assert sent(commands) == [number + 1]
        waiting = 40 - number - 1
        assert only(commands, Mark).excluded_keys == (("hot",) if waiting > 5 else ())
    assert (mpr.scoreboard.waiting, mpr.scoreboard.crowded) == (0, 0)


def test_runs_of_many_hot_keys_leave_room_for_others():
    limits = Limits(max_in_flight_records=40, send_buffer=40, mark_query_records=40)
    outbox = World(random.Random(0), {100 * hot + n: f"hot-{hot}" for hot in range(30) for n in range(100)})
    outbox.rows[9999] = "cold"
    mpr, got = machine(limits), []
    for now in (tick / 10 for tick in range(200)):
        for command in decide(mpr, now):
            if isinstance(command, Mark):
                mpr.marked(now, outbox.mark(command.leader_id, command.limit, command.excluded_keys))
            elif isinstance(command, Send):
                got += [r.id for r in command.records]
    assert 9999 in got, "though nothing was delivered of thirty keys"
    assert mpr.in_flight == 31


def test_a_held_key_is_left_out_of_marks_until_it_is_taken_back():
    mpr = machine()
    over = refuse(mpr, 0.0, record(1, "bad"), record(2, "bad"))
    assert only(decide(mpr, 0.05), Mark).excluded_keys == ("bad",)
    mpr.marked(0.05, [])
    assert only(decide(mpr, over), Reset).ids == [1, 2]
    mpr.reset_done(over)
    assert only(decide(mpr, over + 1), Mark).excluded_keys == ()


def test_a_held_key_is_left_out_of_marks_only_once_it_has_several_rows():
    mpr = machine()
    over = refuse(mpr, 0.0, record(1, "bad"))
    assert only(decide(mpr, 0.05), Mark).excluded_keys == ()
    mpr.marked(0.05, [record(2, "bad")])
    assert only(decide(mpr, 0.06), Mark).excluded_keys == ("bad",)
    mpr.marked(0.06, [])
    assert only(decide(mpr, over), Reset).ids == [1, 2]


def harvest(mpr, outbox, cured_at, seconds):
    """Answers all commands at once; until ``cured_at`` deliveries fail. Returns when how many were reset."""
    now, resets = 0.0, []
    while now < seconds:
        for command in decide(mpr, now):
            if isinstance(command, Mark):
                mpr.marked(now, outbox.mark(command.leader_id, command.limit, command.excluded_keys))
            elif isinstance(command, Reset):
                resets.append((now, len(command.ids)))
                outbox.reset(command)
                mpr.reset_done(now)
            elif isinstance(command, Send) and now < cured_at:
                mpr.failed([Failure(r, "no such topic", retryable=True) for r in command.records])
            elif isinstance(command, Send):
                for r in command.records:
                    outbox.log[r.key].append(r.id)
                mpr.delivered(now, command.records)
            elif isinstance(command, Purge):
                mpr.purged(now, outbox.purge(command))
        now += 0.01
    return resets


def test_of_very_many_keys_that_fail_few_are_taken_back_at_a_time_and_more_once_they_are_delivered():
    limits = Limits(max_in_flight_records=2000, mark_query_records=1000)
    outbox = World(random.Random(0), {number: f"bad-{number}" for number in range(5000)})
    mpr = machine(limits, Failures(first_backoff=0.1, longest_backoff=0.5))
    resets = harvest(mpr, outbox, cured_at=2.0, seconds=6.0)
    failing = [(at, rows) for at, rows in resets if at < 2.0]
    assert sum(rows for _, rows in failing) <= 5 * 100, "a hundred in half a second"
    assert max(rows for _, rows in resets) > 1000, "twice as many after each that was delivered"
    assert outbox.rows == {}


def test_a_mark_that_passed_many_rows_is_not_repeated_at_once():
    mpr = machine(Limits(max_in_flight_records=8, send_buffer=8, mark_query_records=10))
    only(decide(mpr, 0), Mark)
    mpr.marked(0, [record(number) for number in range(1, 11)])
    only(decide(mpr, 0), Mark)
    mpr.marked(0.05, [])
    assert not any(isinstance(command, Mark) for command in decide(mpr, 0.14))
    only(decide(mpr, 0.16), Mark)


@dataclass
class World:
    """A database and a broker in memory, and one machine between them; everything fails at random."""

    chance: random.Random
    rows: dict[int, str] = field(default_factory=dict)
    leader: dict[int, UUID] = field(default_factory=dict)
    log: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    flying: list[MarkedRecord] = field(default_factory=list)
    used: list[UUID] = field(default_factory=list)
    parked: dict[str, int] = field(default_factory=dict)
    out: list[list[object]] = field(default_factory=list)
    locked: set[int] = field(default_factory=set)

    def mark(self, leader_id, limit, excluded, source=0):
        left_out = {*self.parked, *excluded}
        ids = [i for i in sorted(self.rows) if self.leader.get(i) != leader_id and i // CLUSTER == source]
        left_out |= {self.rows[i] for i in self.locked if i in self.rows}
        ids = [i for i in ids if self.rows[i] not in left_out][:limit]
        self.leader.update(dict.fromkeys(ids, leader_id))
        return [record(i, self.rows[i]) for i in ids]

    def lock(self, calm):
        """Has somebody lock some rows, or give them free; in the end all are free."""
        if self.rows and self.chance.random() < 0.05:
            self.locked = set(self.chance.sample(sorted(self.rows), min(2, len(self.rows))))
        if calm or self.chance.random() < 0.05:
            self.locked = set()

    def carried(self, command):
        """Returns the rows that still carry the leader id: those that nobody has locked, and the others."""
        ids = [i for i in command.ids if self.leader.get(i) == command.leader_id]
        return [i for i in ids if i not in self.locked], [i for i in ids if i in self.locked]

    def purge(self, command):
        free, locked = self.carried(command)
        for i in free:
            assert i in self.log[self.rows[i]], "I1, I8: only what the broker has is purged"
            del self.rows[i], self.leader[i]
        return Changed(len(free), locked)

    def park(self, command):
        free, locked = self.carried(command)
        heads = [p.id for p in command.poisons if p.id in free]
        self.parked |= {self.rows[i]: i for i in heads}
        self.reset(command)
        return Changed(len(heads), locked)

    def reset(self, command):
        free, locked = self.carried(command)
        for i in free:
            del self.leader[i]
        return Changed(len(free), locked)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("sources", [1, 3])
def test_nothing_is_lost_or_reordered_whatever_fails(seed, sources):
    chance = random.Random(seed)
    world = World(chance)
    fresh = leader_ids()

    def new_leader_id():
        world.used.append(next(fresh))
        return world.used[-1]

    mpr = MarkPurgeReset(LIMITS, FAILURES, new_leader_id, chance.random, [10.0] * sources)
    written = defaultdict(list)
    now, next_id = 0.0, 0
    for step in range(9000):
        calm = step > 2000
        now += chance.choice([0.001, 0.02, 0.6, 0 if calm else 5])
        if not calm and chance.random() < 0.3:
            next_id += 1
            key, source = chance.choice("abc"), chance.randrange(sources)
            world.rows[source * CLUSTER + next_id] = key
            written[source, key].append(source * CLUSTER + next_id)
        if world.parked and chance.random() < 0.1:
            world.parked.popitem()  # an operator frees the key
        world.lock(calm)
        for command in decide(mpr, now, leading=calm or chance.random() > 0.05):
            execute(world, command)
        answer(world, mpr, now, calm)
        settle_deliveries(world, mpr, now, calm)
        if calm and not world.rows and mpr.drained:
            break
    assert world.rows == {}, "I9: the outbox empties"
    for (source, key), ids in written.items():
        log = [number for number in world.log[key] if number // CLUSTER == source]
        assert list(dict.fromkeys(log)) == ids, "I2: every record arrives, first deliveries in order"
        seen = 0
        for number in log:
            assert number >= seen, "I2: a repeat never comes behind a successor"
            seen = number
    assert len(set(world.used)) == len(world.used), "I7"


EXCLUDED: list[str] = []
"""The keys that the latest mark of ``step`` left out."""


def step(mpr, now, *rows):
    """Returns what a machine wants at a time, but marks, which it answers with these rows."""
    commands = decide(mpr, now)
    for mark in [command for command in commands if isinstance(command, Mark)]:
        mpr.marked(now, list(rows))
        EXCLUDED[:] = mark.excluded_keys
    return [command for command in commands if not isinstance(command, Mark)]


def deliver(mpr, now, *rows):
    """Has rows delivered that are marked and sent, and their purge asked for; returns the purge."""
    assert step(mpr, now, *rows) == []
    mpr.delivered(now, only(step(mpr, now), Send).records)
    return only(step(mpr, now + PURGE_SECONDS), Purge)


def test_a_locked_row_holds_up_its_own_key_only():
    mpr = machine()
    first = mpr.leader_id
    rows = [record(1, "a"), record(2, "b"), record(3, "a"), record(4, "b")]
    assert deliver(mpr, 0.0, *rows) == Purge(first, [1, 2])
    mpr.purged(0.0, Changed(1, locked=[1]))
    assert mpr.in_flight == 0
    assert sent(step(mpr, 0.03)) == [4], "the other key goes on"
    mpr.delivered(0.03, [record(4, "b")])
    assert only(step(mpr, 0.05), Purge).ids == [4]
    mpr.purged(0.05, Changed(1))
    assert step(mpr, 0.9) == [], "there is a pause"
    assert EXCLUDED == ["a"]
    for at in (1.1, 2.2):
        assert step(mpr, at) == [Purge(first, [1])]
        mpr.purged(at, Changed(0, locked=[1]))
    assert wake_at(mpr) > 2.2
    assert step(mpr, 3.3) == [Purge(first, [1])]
    mpr.purged(3.3, Changed(1))
    assert sent(step(mpr, 3.4)) == [3], "its key goes on in order"


def test_a_remark_does_not_wait_for_a_locked_row_which_is_purged_by_its_own_leader_id():
    mpr = machine()
    first = mpr.leader_id
    deliver(mpr, 0.0, record(1, "a"))
    mpr.purged(0.0, Changed(0, locked=[1]))
    assert [type(command) for command in decide(mpr, 0.5)] == [Mark]
    mpr.mark_unknown(0.5)
    assert only(step(mpr, 0.8), Refresh) == Refresh(mpr.leader_id) != Refresh(first)
    assert mpr.scoreboard.excluded() == ("a",), "so that its record is not sent again"
    assert only(step(mpr, 1.1), Purge) == Purge(first, [1])
    mpr.purged(1.1, Changed(1))
    step(mpr, 5.0)
    assert EXCLUDED == []


def test_a_drained_lane_leaves_locked_rows():
    mpr = machine()
    deliver(mpr, 0.0, record(1, "a"))
    mpr.purged(0.0, Changed(0, locked=[1]))
    mpr.drain()
    assert mpr.drained


def test_more_locked_keys_than_a_mark_excludes_for_failures_hold_up_no_other():
    mpr = machine(Limits())
    ids = range(1, MAX_EXCLUDED_KEYS + 100)
    deliver(mpr, 0.0, *[record(number, f"k{number}") for number in ids])
    mpr.purged(0.0, Changed(0, locked=ids))
    step(mpr, 0.5, record(9999, "other"))
    assert sent(step(mpr, 0.5)) == [9999]


def test_what_waits_behind_locked_rows_fills_no_lane():
    mpr = machine()  # which knows eight records
    deliver(mpr, 0.0, *[record(number, key) for number, key in enumerate("abcd" * 2, 1)])
    mpr.purged(0.0, Changed(0, locked=[1, 2, 3, 4]))
    step(mpr, 0.5, record(9, "e"))
    assert list("abcd") == EXCLUDED
    assert sent(step(mpr, 0.5)) == [9]


def test_of_a_key_that_is_tried_again_a_locked_row_is_reset_later():
    mpr = machine()
    over = refuse(mpr, 0.0, record(1, "bad"), record(2, "bad"))
    assert only(step(mpr, over), Reset).ids == [1, 2]
    mpr.reset_done(over, locked=[2])
    assert step(mpr, over + 0.5, record(1, "bad")) == [], "it stays behind the locked row"
    assert only(step(mpr, over + 1.1), Reset).ids == [2, 1]
    mpr.reset_done(over + 1.1)
    step(mpr, over + 1.2, record(1, "bad"), record(2, "bad"))
    assert 1 in sent(step(mpr, over + 1.2))


@pytest.mark.parametrize("locked", [1, 2])
def test_a_key_with_a_locked_row_is_parked_when_its_head_is_free(locked):
    mpr = machine(failures=Failures(park_after=1))
    step(mpr, 0.0, record(1, "bad"), record(2, "bad"))
    mpr.failed([Failure(r, "refused", retryable=False) for r in only(step(mpr, 0.0), Send).records])
    assert only(step(mpr, 0.1) + step(mpr, 0.2), Park).ids == [1, 2]
    mpr.park_done(0.2, Changed(int(locked == 2), locked=[locked]))
    again = only(step(mpr, 1.3), Park if locked == 1 else Reset)
    assert again.ids == [locked]
    mpr.park_done(1.3, Changed(1)) if locked == 1 else mpr.reset_done(1.3)
    held, policy = mpr.scoreboard.held, mpr.scoreboard.held.policy
    assert (held.rows, policy.parking, policy.done, mpr.scoreboard.excludes) == (0, 0, 1, False)
    assert not any(isinstance(command, Refresh) for command in step(mpr, 2.0))


def test_a_row_that_is_kept_is_not_published_again_and_its_key_is_parked():
    mpr = machine(failures=Failures(first_backoff=0.1, longest_backoff=0.5, park_after=2))
    deliver(mpr, 0.0, record(1, "a"), record(2, "b"))
    mpr.purged(0.0, Changed(1, kept=[1]))
    [failure] = only(step(mpr, 0.03), ReportFailures).failures
    assert failure.reason.startswith("row 1 was deleted and is still there: a trigger, rule or row security")
    assert (failure.retryable, mpr.in_flight) == (False, 0)
    parks: list[int] = []
    now = 0.1
    while not parks and now < 5:
        for command in step(mpr, now, record(1, "a")):
            assert not isinstance(command, Send), "its record is in the topic"
            if isinstance(command, Reset):
                mpr.reset_done(now)
            elif isinstance(command, Park):
                parks.append(command.poisons[0].id)
                mpr.park_done(now, Changed(1))
        now += 0.1
    assert parks == [1]


def test_a_kept_row_that_has_an_earlier_leader_id_is_marked_again_and_then_parked():
    mpr = machine(failures=Failures(first_backoff=0.1, park_after=1))
    deliver(mpr, 0.0, record(1, "a"))
    mpr.purged(0.0, Changed(0, locked=[1]))
    step(mpr, 0.5)
    decide(mpr, 0.6)
    mpr.mark_unknown(0.6)
    assert only(step(mpr, 0.9), Refresh)
    assert only(step(mpr, 1.1), Purge)
    mpr.purged(1.1, Changed(0, kept=[1]))
    assert only(step(mpr, 1.2) + step(mpr, 1.3), Park).leader_id == mpr.leader_id
    mpr.park_done(1.3, Changed(0))
    assert only(step(mpr, 1.4, record(1, "a")), Refresh)
    commands = step(mpr, 1.5) + step(mpr, 1.6) + step(mpr, 1.7)
    assert sent(commands) == [], "its record is in the topic"
    assert [poison.id for poison in only(commands, Park).poisons] == [1]


def test_a_mark_and_a_reset_are_never_out_together():
    mpr = machine()
    decide(mpr, 0)
    mpr.marked(0, [record(1)])
    decide(mpr, 0)
    mpr.failed([Failure(record(1), "timed out", retryable=True)])
    only(decide(mpr, 0.01), Mark)
    assert not any(isinstance(command, Reset) for command in decide(mpr, 1)), "it waits for the mark"
    mpr.marked(1, [record(2)])
    assert only(decide(mpr, 1), Reset).ids == [1, 2], "what the mark brought is taken back too"
    assert decide(mpr, 1) == [], "the next mark waits for the reset"


def execute(world, command):
    """Gives a command its effect, now or when it is answered, or loses it; its answer comes later."""
    if isinstance(command, Send):
        for r in command.records:
            assert r.key not in {f.key for f in world.flying}, "I3: one record of a key in flight"
            world.flying.append(r)
    elif not isinstance(command, Refresh | ReportFailures):
        world.out.append([command, None])
        if world.chance.random() < 0.5:
            world.out[-1][1] = effect(world, command)


def effect(world, command):
    if isinstance(command, Mark):
        return world.mark(command.leader_id, command.limit, command.excluded_keys, command.source)
    if isinstance(command, Purge):
        return world.purge(command)
    if isinstance(command, Park):
        return world.park(command)
    return world.reset(command)


def answer(world, mpr, now, calm):
    """Answers some of the commands that are out, in any order."""
    world.chance.shuffle(world.out)
    while world.out and world.chance.random() < 0.6:
        command, result = world.out.pop()
        fate = 1.0 if calm else world.chance.random()
        if result is None and fate > 0.1:
            result = effect(world, command)
        if fate < 0.2:  # it failed, or did its work and the reply was lost
            mpr.mark_unknown(now) if isinstance(command, Mark) else mpr.finishing_unknown(now)
        elif isinstance(command, Mark):
            mpr.marked(now, result)
        elif isinstance(command, Park):
            mpr.park_done(now, result)
        else:
            mpr.purged(now, result) if isinstance(command, Purge) else mpr.reset_done(now, result.locked)


def settle_deliveries(world, mpr, now, calm):
    world.chance.shuffle(world.flying)
    for _ in range(world.chance.randint(0, len(world.flying))):
        r = world.flying.pop()
        fate = 1.0 if calm else world.chance.random()
        if fate > 0.1:
            world.log[r.key].append(r.id)
        if fate > 0.2:
            mpr.delivered(now, [r])
        else:  # failed, perhaps with a copy in the log all the same
            mpr.failed([Failure(r, "timed out", retryable=world.chance.random() > 0.3)])


def test_of_clusters_a_row_that_is_marked_again_is_sent_once():
    mpr = machine(ages=(0.0, 60.0))
    step(mpr, 0.0, record(1, "a"), record(2, "a"))
    assert sent(step(mpr, 0.0, record(1, "a"), record(2, "a"))) == [1]
    mpr.delivered(0.1, [record(1, "a")])
    only(decide(mpr, 0.2), Purge)
    mpr.purged(0.2, Changed(1))
    assert sent(decide(mpr, 0.2)) == [2]
    mpr.delivered(0.2, [record(2, "a")])
    only(decide(mpr, 0.3), Purge)
    mpr.purged(0.3, Changed(1))
    assert mpr.scoreboard.waiting == 0
