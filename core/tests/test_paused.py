"""What lanes and their state machines make of pauses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from outbox_api import WHOLE, Advanced, Batch, Changed, Failure, MarkedRecord, Outline, Pause
from outbox_api.seams.outbox_table import Outlined
from outbox_core.delivery.at_least_once import PURGE_SECONDS, MarkPurgeReset
from outbox_core.delivery.coalescing import Coalesce
from outbox_core.delivery.commands import Advance, Mark, Publish, Purge, Reset
from outbox_core.delivery.exactly_once import SelectPublishPurge
from outbox_core.delivery.left_rows import LOCKED_SECONDS
from outbox_core.delivery.paused import NOTHING, Paused
from outbox_core.lanes.pauses import LOOK_SECONDS, Pauses
from outbox_core.settings import Failures, Limits
from outbox_core.status.pauses import in_effect

from .deciding import Send, decide, wake_at

LIMITS = Limits(max_in_flight_records=4, send_buffer=40, mark_query_records=20, max_batch_records=4)
FAILURES = Failures(first_backoff=0.1, longest_backoff=0.5, park_after=3)
PAUSED = Paused.of(["a"])
SINCE = datetime(2026, 1, 1, tzinfo=UTC)


def marking(run_records=1):
    ids = iter(range(1, 100))
    return MarkPurgeReset(LIMITS, FAILURES, lambda: UUID(int=next(ids)), lambda: 0.5, run_records=run_records)


def record(number, topic, key="k"):
    return MarkedRecord(number, topic, key, "value")


def only(commands, kind):
    (found,) = [command for command in commands if isinstance(command, kind)]
    return found


def sent(commands):
    return [record.id for each in commands if isinstance(each, Send) for record in each.records]


def step(machine, now):
    """Decides, and answers a mark with nothing."""
    commands = decide(machine, now)
    if any(isinstance(each, Mark) for each in commands):
        machine.marked(now, [])
    return commands


def marked(machine, now, *records):
    only(decide(machine, now), Mark)
    machine.marked(now, list(records))


def test_what_is_in_flight_goes_on_and_the_rest_is_taken_back_but_for_other_topics():
    machine = marking()
    marked(machine, 0, record(1, "a"), record(2, "b"), record(3, "a"), record(4, "b", "other"))
    assert sent(step(machine, 0)) == [1, 4]
    machine.pause(0, PAUSED)
    assert not machine.settled
    commands = decide(machine, 0)
    assert only(commands, Reset).ids == [3]
    machine.reset_done(0)
    machine.delivered(0, [record(1, "a"), record(4, "b", "other")])
    commands = decide(machine, PURGE_SECONDS)
    assert sorted(only(commands, Purge).ids) == [1, 4]
    assert only(commands, Mark).excluded_topics == ("a",)
    machine.purged(0, Changed(2))
    assert machine.settled
    assert sent(decide(machine, 0)) == [2], "the key goes on in its other topic"


def test_a_pause_waits_for_nothing_that_was_sent_since():
    machine = marking()
    marked(machine, 0, record(1, "a"))
    step(machine, 0)
    machine.pause(0, PAUSED)
    marked(machine, 1, record(2, "b", "other"))
    assert sent(decide(machine, 1)) == [2]
    machine.delivered(1, [record(1, "a")])
    decide(machine, 2)
    machine.purged(2, Changed(1))
    assert machine.in_flight == 1
    assert machine.settled


def test_a_topic_that_is_resumed_waits_until_what_was_taken_back_is_reset():
    machine = marking()
    marked(machine, 0, record(1, "a"), record(2, "a"), record(3, "a"))
    step(machine, 0)
    machine.pause(0, PAUSED)
    assert only(decide(machine, 0), Reset).ids == [2, 3]
    machine.reset_done(0, locked=[2])
    machine.pause(0, NOTHING)
    assert only(decide(machine, 0), Mark).excluded_topics == ("a",)
    machine.marked(0, [])
    assert only(decide(machine, LOCKED_SECONDS), Reset).ids == [2]
    machine.reset_done(LOCKED_SECONDS)
    assert only(decide(machine, LOCKED_SECONDS), Mark).excluded_topics == ()


def test_a_reset_of_unknown_outcome_ends_in_a_remark_after_which_nothing_is_to_be_reset():
    machine = marking()
    marked(machine, 0, record(1, "a"), record(2, "a"))
    step(machine, 0)
    machine.pause(0, PAUSED)
    only(decide(machine, 0), Reset)
    machine.finishing_unknown(0)
    assert only(decide(machine, 1), Reset).ids == [2]
    machine.reset_done(1)
    machine.failed([Failure(record(1, "a"), "away", retryable=True)])
    decide(machine, 1)
    assert only(decide(machine, 2), Reset).ids == [], "all is marked anew"
    machine.reset_done(2)
    mark = only(decide(machine, 2), Mark)
    assert (mark.leader_id, mark.excluded_topics) == (UUID(int=2), ("a",))


def test_what_follows_in_a_run_is_taken_back_and_what_is_delivered_of_it_purged():
    machine = marking(run_records=5)
    marked(machine, 0, *(record(number, "a") for number in (1, 2, 3)))
    (send,) = [each for each in step(machine, 0) if isinstance(each, Send)]
    assert [each.id for each in send.first] == [1]
    machine.delivered(0, [record(1, "a")._replace(partition=3)])
    assert machine.scoreboard.following == 2
    machine.pause(0, PAUSED)
    assert machine.scoreboard.following == machine.scoreboard.waiting == 0
    assert only(decide(machine, 0), Reset).ids == [2, 3]
    machine.reset_done(0)
    assert only(decide(machine, PURGE_SECONDS), Purge).ids == [1]
    machine.purged(0, Changed(1))
    assert machine.settled
    assert machine.scoreboard.bytes == 0


def test_a_full_key_whose_records_are_taken_back_is_full_no_more():
    machine = marking()
    marked(machine, 0, *(record(number, "a" if number % 2 else "b") for number in range(20)))
    step(machine, 0)
    assert machine.scoreboard.excludes
    machine.pause(0, PAUSED)
    assert (machine.scoreboard.waiting, machine.scoreboard.crowded) == (9, 9)
    machine.pause(0, Paused(whole=True))
    board = machine.scoreboard
    assert (board.waiting, board.crowded, board.excludes) == (0, 0, False)


def test_nothing_is_marked_or_looked_for_while_all_is_paused():
    machine = marking()
    machine.pause(0, Paused(whole=True))
    assert decide(machine, 5) == []
    assert wake_at(machine) == float("inf")
    machine.pause(6, NOTHING)
    only(decide(machine, 6), Mark)
    with pytest.raises(TypeError, match="a mark is out"):
        machine.pause(6, PAUSED)


def selecting():
    return SelectPublishPurge(LIMITS, FAILURES, lambda: 0.5)


def test_a_transaction_ends_and_what_is_selected_of_a_paused_topic_is_given_up():
    line = selecting()
    only(decide(line, 0), Advance)
    line.advanced(0, Advanced(0, [record(n, "a") for n in (1, 2, 3, 4)], "now"))
    commands = decide(line, 0)
    assert len(only(commands, Publish).records) == 4
    line.advanced(0, Advanced(0, [record(5, "a"), record(6, "b"), record(7, "a")], "now"))
    line.pause(0, PAUSED)
    assert not line.settled
    line.published(1)
    assert line.settled
    commands = decide(line, 1)
    assert [each.id for each in only(commands, Publish).records] == [6]
    advance = only(commands, Advance)
    line.advanced(1, Advanced(4, [], "now"))
    line.published(2)
    advance = only(decide(line, 3), Advance)
    assert advance.excluded_topics == ("a",)
    line.advanced(3, Advanced(0, [], "now"))
    line.pause(3, NOTHING)
    assert only(decide(line, 4), Advance).finished == [Batch.of([6], "now")]
    line.advanced(4, Advanced(1, [], "now"))
    assert only(decide(line, 5), Advance).excluded_topics == ()


def test_what_goes_on_of_an_aborted_batch_has_nothing_that_is_paused():
    line = selecting()
    decide(line, 0)
    records = [record(1, "a", "x"), record(2, "b", "y"), record(3, "b", "z")]
    line.advanced(0, Advanced(0, records, "now"))
    only(decide(line, 0), Publish)
    line.pause(0, PAUSED)
    line.aborted(1, [Failure(records[2], "too large", retryable=False)])
    assert [each.id for each in only(decide(line, 1), Publish).records] == [2]
    assert line.settled


def test_nothing_is_selected_while_all_is_paused_and_what_is_published_is_purged():
    line = selecting()
    decide(line, 0)
    line.advanced(0, Advanced(0, [record(1, "a")], "now"))
    decide(line, 0)
    line.pause(0, Paused(whole=True))
    line.published(1)
    assert only(decide(line, 1), Advance) == Advance(
        [Batch.of([1], "now")], [], 0, LIMITS.max_lane_bytes // 2
    )
    line.advanced(1, Advanced(1, [], "now"))
    assert decide(line, 5) == []
    assert wake_at(line) == float("inf")


def test_what_is_paused_is_not_superseded():
    outline = Outline(
        [Outlined(1, "a", "k"), Outlined(2, "b", "k"), Outlined(3, "a", "k"), Outlined(4, "b", "k")]
    )
    assert [*Coalesce(0, 9, ("*",), paused=PAUSED).superseded(outline).ids()] == [2]


class Machine:
    """A state machine that has something in flight until it is told otherwise."""

    def __init__(self):
        self.paused = NOTHING
        self.settled = False

    def pause(self, _now, paused):
        self.paused = paused


def pause(topic, seconds=0.0):
    return Pause(topic, "ann", "", SINCE + timedelta(seconds=seconds))


def test_a_lane_says_which_pauses_are_in_effect_and_which_are_not_any_more():
    machine = Machine()
    pauses = Pauses(machine, [pause("a")], 0.0)
    assert machine.paused == PAUSED
    assert not pauses.has_changed()
    assert pauses.as_data() == {}
    machine.settled = True
    assert pauses.has_changed()
    assert not pauses.has_changed()
    assert in_effect(pauses.as_data(), pause("a"))
    assert not in_effect(pauses.as_data(), pause("a", 1))
    machine.settled = False
    pauses.looked(1.0, [pause("a"), pause(WHOLE)])
    assert not pauses.has_changed(), "the first stays in effect, the second is not yet"
    pauses.looked(2.0, [pause("a", 1)])
    assert pauses.has_changed()
    assert not in_effect(pauses.as_data(), pause("a"))
    pauses.looked(3.0, [])
    assert (machine.paused, pauses.as_data()) == (NOTHING, {})


def test_a_lane_looks_every_second_and_keeps_what_it_knows_when_that_fails():
    machine = Machine()
    pauses = Pauses(machine, [pause("a")], 5.0)
    assert pauses.due == 5.0 + LOOK_SECONDS
    pauses.asked()
    assert pauses.due == float("inf")
    pauses.failed(7.0)
    assert pauses.due == 7.0 + LOOK_SECONDS
    assert machine.paused == PAUSED


def test_what_has_ended_is_told_once():
    pauses = Pauses(Machine(), [pause("a"), pause("b")], 0.0)
    assert not pauses.take_ended()
    pauses.looked(1.0, [pause("a"), pause("b"), pause(WHOLE)])
    assert not pauses.take_ended()
    pauses.looked(2.0, [pause("a"), pause("c"), pause(WHOLE)])
    assert pauses.take_ended()
    assert not pauses.take_ended()
    pauses.looked(3.0, [pause("a"), pause("c")])
    assert pauses.take_ended()
    pauses.looked(4.0, [pause("a"), pause("c", 1)])
    assert not pauses.take_ended(), "it goes on"
