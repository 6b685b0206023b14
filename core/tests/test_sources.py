"""Whose rows a lane looks at next: its own at every look, those of other clusters when they are due."""

import itertools
from uuid import UUID

import pytest
from outbox_api import Advanced, Changed, ColumnIs, Failure, MarkedRecord
from outbox_core.delivery.at_least_once import MarkPurgeReset
from outbox_core.delivery.batch_size import IDLE_SECONDS, BatchSize
from outbox_core.delivery.commands import Advance, Mark, Publish, Reset
from outbox_core.delivery.exactly_once import SelectPublishPurge
from outbox_core.delivery.retries import RetryPolicy
from outbox_core.delivery.scoreboard import Scoreboard
from outbox_core.delivery.sources import AGE_SHARE, EMPTY_SECONDS, LOOK_SHARE, Sources, ages
from outbox_core.settings import Failures, Limits

from .deciding import Refresh, Send, decide, wake_at

OLD = 600.0
FULL = {"full": True, "empty": False}
SOME = {"full": False, "empty": False}
EMPTY = {"full": False, "empty": True}
LIMITS = Limits(mark_query_records=4, max_batch_records=4)
FAILURES = Failures(first_backoff=0.1, longest_backoff=0.5, park_after=1)
OTHERS = 10**6
"""Ids of another cluster are higher than this."""


def sources(*least_ages):
    return Sources(least_ages, lambda: BatchSize(0.01, 0.1, 1000))


def look(board, now, **found):
    """Takes a look that is answered at once; returns its source."""
    assert board.due() <= now
    board.begin(now)
    source, _ = board.look
    board.found(now, **found)
    return source


def test_the_ages_are_those_of_the_conditions():
    conditions: list[ColumnIs] = [
        ColumnIs("cluster_id", 1),
        ColumnIs("cluster_id", 2, 600.0),
    ]
    assert ages(conditions) == (0.0, 600.0)


@pytest.mark.parametrize("least_ages", [(), (OLD,)])
def test_one_source_is_due_as_its_size_says(least_ages):
    board, size = sources(*least_ages), BatchSize(0.01, 0.1, 1000)
    now = 0.0
    for found in (FULL, FULL, SOME, EMPTY, EMPTY, EMPTY, FULL):
        assert look(board, now, **found) == 0
        size.marked(now, **found)
        assert (board.due(), board.limit) == (size.due, size.limit)
        now = size.due


def test_the_own_source_comes_first_and_takes_turns_with_the_others():
    board = sources(0.0, OLD, OLD, 0.0)
    assert [look(board, 0.0, **FULL) for _ in range(9)] == [0, 1, 0, 2, 0, 3, 0, 1, 0]


def test_others_go_on_alone_while_there_are_no_own_rows():
    board = sources(0.0, OLD, OLD)
    assert look(board, 0.0, **EMPTY) == 0
    assert [look(board, 0.001, **FULL) for _ in range(4)] == [1, 2, 1, 2]
    assert look(board, 0.01, **EMPTY) == 0, "the look at it is due again"


def test_an_empty_source_of_others_rests_and_changes_nothing_for_the_own_one():
    board, size = sources(0.0, OLD), BatchSize(0.01, 0.1, 1000)
    looks = {0: 0, 1: 0}
    now = 0.0
    for _ in range(1010):
        board.begin(now)
        source, limit = board.look
        looks[source] += 1
        if source == 0:
            assert limit == size.limit
            size.marked(now, **FULL)
            board.found(now, **FULL)
            now += 0.01
        else:
            board.found(now, **EMPTY)
    assert looks == {0: 1000, 1: 10}, "one a second"


def test_an_idle_own_source_is_looked_at_as_often_as_without_others():
    alone, board = sources(0.0), sources(0.0, OLD, 2.0)

    def times(them):
        now, found = 0.0, []
        while now < 5.0:
            them.begin(now)
            if them.look[0] == 0:
                found.append(now)
            them.found(now, **EMPTY)
            now = them.due()
        return found

    assert times(board) == times(alone)


@pytest.mark.parametrize(("age", "pause"), [(OLD, EMPTY_SECONDS), (2.0, 2.0 / AGE_SHARE), (0.0, 0.01)])
def test_how_long_an_empty_source_rests(age, pause):
    board = sources(0.0, age)
    look(board, 0.0, **FULL)
    board.begin(0.0)
    board.found(0.0, **EMPTY)
    look(board, 0.0, **EMPTY)
    look(board, board.due(), **EMPTY)
    assert board.look[0] == (0 if pause > 0.01 else 1)
    times: list[float] = []
    while len(times) < 2:
        now = board.due()
        if look(board, now, **EMPTY) == 1:
            times.append(now)
    if age:
        assert times == pytest.approx([pause, 2 * pause])
    else:
        assert times[1] - times[0] <= IDLE_SECONDS, "its rows are taken as soon as they come"


def test_a_long_look_that_found_nothing_is_followed_by_a_longer_rest():
    board = sources(0.0, OLD)
    look(board, 0.0, **FULL)
    board.begin(0.0)
    board.found(0.1, **EMPTY)
    now = 0.1 + LOOK_SHARE * 0.1
    assert look(board, now - 0.01, **FULL) == 0
    assert look(board, now - 0.01, **FULL) == 0
    assert look(board, now, **FULL) == 1
    board.hurry(now)
    assert [look(board, now, **SOME) for _ in range(2)] == [0, 1], "it does not rest once it has rows"


def test_what_is_found_resets_the_own_pace_alone():
    board = sources(0.0, OLD)
    assert look(board, 0.0, **SOME) == 0
    assert look(board, 0.0, **FULL) == 1
    assert look(board, 0.0, **EMPTY) == 1
    assert board.due() == 0.01


def test_in_a_hurry_all_are_due_but_for_those_that_rest():
    board = sources(0.0, OLD, OLD)
    look(board, 0.0, **EMPTY)
    board.begin(0.0)
    board.found(0.0, **EMPTY)
    board.begin(0.0)
    board.found(0.1, **EMPTY)
    board.hurry(0.2)
    assert [look(board, 0.2, **EMPTY) for _ in range(2)] == [0, 1]
    assert board.due() > 0.2


def test_a_source_whose_rows_were_given_up_is_next():
    board = sources(0.0, OLD, OLD)
    assert [look(board, 0.0, **FULL) for _ in range(4)] == [0, 1, 0, 2]
    board.repeat(0.0, 1, anew=True)
    board.begin(0.0)
    assert board.look == (1, 100)
    board.found(0.0, **FULL)
    assert look(board, 0.0, **FULL) == 0


def test_there_is_a_backlog_while_any_source_has_one():
    board = sources(0.0, OLD)
    look(board, 0.0, **FULL)
    look(board, 0.0, **EMPTY)
    assert board.backlog
    look(board, 0.0, **EMPTY)
    assert not board.backlog


# --- the state machines ---------------------------------------------------------------------------------


def record(number, key="k"):
    return MarkedRecord(number, "topic", key, "value")


def only(commands, kind):
    (found,) = [command for command in commands if isinstance(command, kind)]
    return found


def marking(*least_ages, limits=LIMITS):
    ids = (UUID(int=number) for number in itertools.count(1))
    return MarkPurgeReset(limits, FAILURES, ids.__next__, lambda: 0.5, least_ages)


def test_marks_take_turns_and_the_lane_sleeps_until_any_source_is_due():
    mpr = marking(0.0, OLD)
    assert only(decide(mpr, 0), Mark).source == 0
    mpr.marked(0, [])
    assert wake_at(mpr) == 0.0
    assert only(decide(mpr, 0), Mark).source == 1
    mpr.marked(0, [])
    assert wake_at(mpr) == LIMITS.mark_backoff
    assert decide(mpr, 0) == []


def test_records_of_one_key_wait_for_each_other_whatever_their_source():
    mpr = marking(0.0, OLD)
    decide(mpr, 0)
    mpr.marked(0, [record(5)])
    assert only(decide(mpr, 0), Send).records == [record(5)]
    mpr.marked(0, [record(OTHERS + 1)])
    commands = decide(mpr, 0)
    assert not [command for command in commands if isinstance(command, Send)]
    mpr.delivered(0, [record(5)])
    decide(mpr, 1)
    mpr.purged(1, Changed(1))
    assert only(decide(mpr, 1), Send).records == [record(OTHERS + 1)]


def test_after_a_reset_the_rows_of_all_sources_are_looked_for():
    mpr = marking(0.0, OLD)
    decide(mpr, 0)
    mpr.marked(0, [record(5)])
    decide(mpr, 0)
    mpr.marked(0, [record(OTHERS + 1)])
    decide(mpr, 0)
    mpr.failed([Failure(record(5), "timed out", retryable=True)])
    for _ in range(2):
        decide(mpr, 0.05)
        mpr.marked(0.05, [])
    assert only(decide(mpr, 0.2), Reset).ids == [5, OTHERS + 1]
    mpr.reset_done(0.2)
    marks = [only(decide(mpr, 0.2), Mark)]
    mpr.marked(0.2, [record(5)])
    marks.append(only(decide(mpr, 0.2), Mark))
    assert [mark.source for mark in marks] == [0, 1], "the record that failed comes before the others again"


def test_a_remark_looks_at_all_sources():
    mpr = marking(0.0, OLD)
    for _ in range(2):
        decide(mpr, 0)
        mpr.marked(0, [])
    only(decide(mpr, 0.1, leading=False) + decide(mpr, 0.1), Refresh)
    assert only(decide(mpr, 0.1), Mark) if mpr._mark is None else mpr._mark.source == 0
    mpr.marked(0.1, [])
    assert only(decide(mpr, 0.1), Mark).source == 1


def test_own_records_of_a_key_do_not_make_the_failures_of_another_clusters_record_forgotten():
    board = Scoreboard(RetryPolicy(Failures(park_after=3), lambda: 0.5), 100)
    for attempt in range(3):
        if attempt:
            board.held.unhold(["k"])
        own, other = record(attempt), record(OTHERS)
        board.admit(attempt, [own])
        board.take(1)
        board.release(attempt, [own])
        board.admit(attempt, [other])
        board.take(1)
        board.hold(attempt, [Failure(other, "too large", retryable=False)])
        assert board.held.holds["k"].failures == attempt + 1
        assert board.held.holds["k"].parking is (attempt == 2)


def batches(*least_ages):
    return SelectPublishPurge(LIMITS, FAILURES, lambda: 0.5, (), least_ages)


def found(line, now, *ids):
    line.advanced(now, Advanced(0, [record(number) for number in ids], "now"))


def test_a_batch_is_of_one_source_and_an_empty_one_does_not_end_the_backlog():
    line = batches(0.0, OLD)
    assert only(decide(line, 0), Advance).source == 0
    found(line, 0, 1, 2, 3, 4)
    commands = decide(line, 0)
    assert [each.id for each in only(commands, Publish).records] == [1, 2, 3, 4]
    assert only(commands, Advance).source == 1, "selected while the first is published"
    found(line, 0)
    advance = only(decide(line, 0), Advance)
    assert (advance.source, advance.pending) == (0, [batch for batch, _ in line.batches()])


def test_the_rows_of_an_aborted_batch_are_selected_again_before_those_of_others():
    line = batches(0.0, OLD)
    decide(line, 0)
    found(line, 0, 1, 2, 3, 4)
    decide(line, 0)
    found(line, 0, OTHERS + 1, OTHERS + 2, OTHERS + 3, OTHERS + 4)
    line.published(0)
    assert only(decide(line, 0), Publish).records[0].id == OTHERS + 1
    found(line, 0, 5, 6, 7, 8)
    line.aborted(0, [Failure(record(OTHERS + 1), "timed out", retryable=True)])
    again = only(decide(line, 1), Advance)
    assert again.source == 1
    found(line, 1)
    assert only(decide(line, 1), Advance).source == 0, "what was selected behind it is selected again"


def test_failures_of_one_key_are_counted_for_each_source():
    line = SelectPublishPurge(LIMITS, Failures(park_after=2), lambda: 0.5, (), (0.0, OLD))
    decide(line, 0)
    found(line, 0, OTHERS)
    decide(line, 0)
    line.aborted(0, [Failure(record(OTHERS), "too large", retryable=False)])
    assert len(line.failed.attempts) == 1
    line.failed.delivered([record(OTHERS + 5)], 1)
    assert len(line.failed.attempts) == 1, "delivered by another source: nothing is known of this one"
    line.failed.delivered([record(OTHERS + 5)], 0)
    assert line.failed.attempts == {}
