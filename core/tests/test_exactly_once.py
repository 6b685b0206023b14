"""Exactly-once delivery as a state machine: its rules one by one, and a world that fails at random."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field

import pytest
from outbox_api import MAX_CHECKPOINT, Advanced, Batch, Failure, MarkedRecord
from outbox_core.delivery.checkpoint import decode, encode
from outbox_core.delivery.commands import Advance, Park, Publish
from outbox_core.delivery.exactly_once import LOCKED_SECONDS, LONG_SECONDS, SelectPublishPurge
from outbox_core.events.stages import BatchStage
from outbox_core.settings import Failures, Limits

from .deciding import ReportFailures, decide, wake_at

LIMITS = Limits(max_batch_records=4)
FOREVER = float("inf")
BYTES = LIMITS.max_lane_bytes // 2
FAILURES = Failures(first_backoff=0.1, longest_backoff=0.5, park_after=3)
CLUSTER = 10**6
"""Each cluster's ids begin at a multiple of this."""


def machine(limits=LIMITS, failures=FAILURES, locked=()):
    return SelectPublishPurge(limits, failures, lambda: 0.5, locked)


def record(number, key="k", fault=None):
    return MarkedRecord(number, "topic", key, "value", fault=fault)


def batch(*ids):
    return Batch.of(ids, "now")


def advanced(line, now, records, *locked):
    """Answers an advance that found nothing locked, or these batches."""
    line.advanced(now, Advanced(0, records, "now", locked))


def named(publish):
    """Returns the batches that a checkpoint names."""
    published, attempted = decode(publish.checkpoint)
    return [*published, attempted]


def only(commands, kind):
    (found,) = [command for command in commands if isinstance(command, kind)]
    return found


def none(commands, kind):
    assert not [command for command in commands if isinstance(command, kind)]


def test_a_batch_is_selected_published_and_purged_behind_the_next_selection():
    line = machine()
    advance = only(decide(line, 0), Advance)
    assert advance == Advance([], [], 4, BYTES)
    advanced(line, 0, [record(1), record(2)])
    publish = only(decide(line, 0), Publish)
    assert [r.id for r in publish.records] == [1, 2]
    assert named(publish) == [batch(1, 2)]
    none(decide(line, 1), Advance)
    line.published(1)
    assert only(decide(line, 1), Advance) == Advance([], [batch(1, 2)], 4, BYTES)
    advanced(line, 1, [record(3)])
    commands = decide(line, 1)
    assert named(only(commands, Publish)) == [batch(1, 2), batch(3)]
    assert only(commands, Advance) == Advance([batch(1, 2)], [batch(3)], 0, BYTES)
    advanced(line, 1, [])
    line.published(2)
    assert only(decide(line, 2), Advance) == Advance([], [batch(3)], 4, BYTES)
    assert not line.drained
    advanced(line, 2, [])
    assert wake_at(line) == 0
    assert only(decide(line, 2), Advance) == Advance([batch(3)], [], 0, BYTES)
    advanced(line, 2, [])
    assert line.drained


def test_out_of_a_backlog_the_next_batch_is_selected_while_one_is_published():
    line = machine()
    decide(line, 0)
    advanced(line, 0, [record(n) for n in (1, 2, 3, 4)])
    commands = decide(line, 0)
    only(commands, Publish)
    ahead = only(commands, Advance)
    assert ahead.pending == [batch(1, 2, 3, 4)], "what is being published is not selected again"
    advanced(line, 0, [record(n) for n in (5, 6, 7, 8)])
    none(decide(line, 0), Publish)
    line.published(0)
    commands = decide(line, 0)
    first, second = batch(1, 2, 3, 4), batch(5, 6, 7, 8)
    assert named(only(commands, Publish)) == [first, second], "the first is not purged yet"
    assert only(commands, Advance) == Advance([first], [second], 4, BYTES)
    line.published(0)
    advanced(line, 0, [record(9)])
    assert named(only(decide(line, 0), Publish)) == [second, batch(9)]


def test_a_purge_that_is_out_keeps_its_batch_in_the_checkpoint():
    line = machine()
    decide(line, 0)
    advanced(line, 0, [record(1)])
    decide(line, 0)
    line.published(0)
    only(decide(line, 0), Advance)
    advanced(line, 0, [record(2), record(3), record(4), record(5)])
    decide(line, 0)
    assert line.in_flight == 4


def test_after_an_abort_the_others_go_on_at_once_without_what_is_behind_the_failed_record_of_its_key():
    line = machine()
    decide(line, 0)
    advanced(line, 0, [record(1), record(2, "bad"), record(3), record(4, "bad")])
    only(decide(line, 0), Advance)
    failure = Failure(record(2, "bad"), "timed out", retryable=True)
    line.aborted(0, [failure])
    commands = decide(line, 0)
    assert only(commands, ReportFailures).failures == [failure]
    assert only(commands, Publish).records == [record(1), record(3)]
    assert line.batches()[-1] == (batch(1, 3), BatchStage.PUBLISHING)
    advanced(line, 0, [record(5)])
    assert line.waiting == 0, "what was selected behind the aborted batch must not pass it"
    again = only(decide(line, 0), Advance)
    assert (again.pending, again.excluded_keys) == ([batch(1, 3)], ("bad",))


def test_a_held_key_is_tried_again_after_its_pause_and_by_every_second_selection_only():
    line = machine(failures=Failures(first_backoff=0.1))
    now = abort(line, 0.0, record(1, "bad"), retryable=True)
    assert now == 0, "the lane does not wait"
    looks = []
    for moment in (0.0, 0.05, 0.15, 0.2):
        looks.append(only(decide(line, moment), Advance).excluded_keys)
        advanced(line, moment, [])
        now = wake_at(line)
    assert looks == [("bad",), ("bad",), (), ()]


def test_a_suspect_is_not_held_and_the_lane_waits_if_nothing_is_before_it():
    line = machine()
    decide(line, 0)
    rows = [record(number, f"k{number}") for number in range(4)]
    advanced(line, 0, rows)
    decide(line, 0)
    line._database = None
    line.aborted(0, [Failure(rows[2], "one of them", retryable=True, suspect=True)])
    assert only(decide(line, 0), Publish).records == rows[:2]
    line._database = None
    line.aborted(0, [Failure(rows[0], "all of them", retryable=True, suspect=True)])
    assert only(decide(line, 0), ReportFailures)
    assert decide(line, 0.05) == [], "a pause comes first"
    assert only(decide(line, 0.1), Advance).excluded_keys == ()
    advanced(line, 0.1, rows[:1])
    only(decide(line, 0.1), Publish)
    line.aborted(0.1, [Failure(rows[0], "it alone", retryable=True, suspect=True)])
    assert only(decide(line, 0.1), Advance).excluded_keys == ("k0",)


def test_where_no_key_can_be_held_any_more_the_lane_waits(monkeypatch: pytest.MonkeyPatch):
    line = machine()
    monkeypatch.setattr(line.failed.held, "_most", 0)
    assert abort(line, 0.0, record(1, "bad"), record(2), retryable=True) == 0.1
    assert only(decide(line, 0.1), Advance).excluded_keys == ()


def test_keys_that_are_parked_one_after_the_other_are_parked_together():
    line = machine(failures=Failures(park_after=1))
    decide(line, 0)
    rows = [record(number, f"k{number}") for number in range(4)]
    advanced(line, 0, rows)
    assert only(decide(line, 0), Advance)  # is out meanwhile
    line.aborted(0, [Failure(rows[0], "refused", retryable=False)])
    assert only(decide(line, 0), Publish).records == rows[1:]
    line.aborted(0, [Failure(rows[2], "refused", retryable=False)])
    assert only(decide(line, 0), Publish).records == [rows[1], rows[3]]
    advanced(line, 0, [])
    assert [poison.id for poison in only(decide(line, 0), Park).poisons] == [0, 2]


def abort(line, now, culprit, *rest, retryable=False):
    """Marks and publishes some records, of which the first fails; returns what follows and when."""
    only(decide(line, now), Advance)
    advanced(line, now, [culprit, *rest])
    only(decide(line, now), Publish)
    line.aborted(now, [Failure(culprit, "too large", retryable=retryable)])
    now = max(now, wake_at(line))
    decide(line, now) if line._resume > now else None
    return max(now, line._resume)


def test_a_record_that_is_refused_too_often_has_its_key_parked():
    line = machine()
    now = 0.0
    for _ in range(2):
        abort(line, now, record(1, "bad"), record(3, "bad"))
        now += 1
    only(decide(line, now), Advance)
    advanced(line, now, [record(1, "bad"), record(2, "good"), record(3, "bad")])
    only(decide(line, now), Publish)
    line._database = None
    line.aborted(now, [Failure(record(1, "bad"), "too large", retryable=False)])
    commands = decide(line, now)
    assert only(commands, Publish).records == [record(2, "good")]
    park = only(commands, Park)
    assert (park.leader_id, park.ids) == (None, [])
    assert [(poison.id, poison.attempts) for poison in park.poisons] == [(1, 3)]
    line.parked(now, 1)
    assert line.policy.parked == 1
    line.published(now)
    assert only(decide(line, now), Advance).excluded_keys == ()


def test_a_faulty_row_is_never_published():
    line = machine()
    decide(line, 0)
    advanced(line, 0, [record(1), record(2, "bad", fault="header arrays differ in length")])
    commands = decide(line, 0)
    none(commands, Publish)
    assert only(commands, ReportFailures).failures[0].reason == "header arrays differ in length"


@pytest.mark.parametrize(("suspect", "limit"), [(False, 800), (True, 100)])
def test_batches_stay_large_but_for_one_that_begins_with_what_failed_and_is_not_held(suspect, limit):
    line = machine(Limits(max_batch_records=1000))
    now = 0.0
    for _ in range(3):
        size = only(decide(line, now), Advance).limit
        advanced(line, now, [record(n) for n in range(size)])
        only(decide(line, now), Publish)
        line._database = None
        line.published(now)
    only(decide(line, now), Advance)
    advanced(line, now, [record(1, "bad"), record(2, "bad"), record(3)])
    only(decide(line, now), Publish)
    line.aborted(now, [Failure(record(1, "bad"), "refused", retryable=True, suspect=suspect)])
    decide(line, now)
    if not suspect:
        line.published(now)
    assert only(decide(line, wake_at(line)), Advance).limit == limit


def test_what_lies_before_the_culprit_is_published_and_not_parked_with_it():
    line = machine(Limits(max_batch_records=1000), Failures(park_after=2))
    decide(line, 0)
    good, bad, rest = record(1), record(2), record(3)
    advanced(line, 0, [good, bad, rest])
    only(decide(line, 0), Publish)
    line.aborted(0, [Failure(bad, "too large", retryable=False)])
    commands = decide(line, 0)
    none(commands, Park)
    assert only(commands, Publish).records == [good]
    line._database = None
    line.published(0)
    assert only(decide(line, 0), Advance).excluded_keys == ()
    advanced(line, 0, [bad, rest])
    only(decide(line, 0), Publish)
    line._database = None
    line.aborted(0, [Failure(bad, "too large", retryable=False)])
    park = only(decide(line, 0), Park)
    assert [(poison.id, poison.attempts) for poison in park.poisons] == [(2, 2)]


def test_what_cannot_be_parked_any_more_is_not_tried_without_end():
    line = machine(failures=Failures(first_backoff=0.1, park_after=1, most_parked_keys=0))
    abort(line, 0.0, record(1, "bad"))
    assert only(decide(line, 0.05), Advance).excluded_keys == ("bad",), "others go on meanwhile"
    advanced(line, 0.05, [])
    assert only(decide(line, 5), Advance).excluded_keys == ()


def test_a_held_key_that_is_parked_once_there_is_room_is_left_out_no_longer():
    line = machine(failures=Failures(first_backoff=0.1, park_after=1, most_parked_keys=1))
    line.policy.counted(1, done_before=0)
    abort(line, 0.0, record(1, "bad"))
    assert only(decide(line, 0.05), Advance).excluded_keys == ("bad",)
    advanced(line, 0.05, [])
    line.policy.counted(0, done_before=0)
    assert only(decide(line, 5), Advance).excluded_keys == (), "its pause is over"
    advanced(line, 5, [record(1, "bad")])
    only(decide(line, 5), Publish)
    line.aborted(5, [Failure(record(1, "bad"), "too large", retryable=False)])
    only(decide(line, 5), Park)
    line.parked(5, 1)
    assert only(decide(line, 5), Advance).excluded_keys == (), "the letters leave it out, until it is retried"


def test_the_life_of_each_batch_is_told():
    line = machine()
    decide(line, 0)
    advanced(line, 0, [record(1), record(2)])
    assert line.batches() == [(batch(1, 2), BatchStage.SELECTED)]
    decide(line, 0)
    assert line.batches() == [(batch(1, 2), BatchStage.PUBLISHING)]
    line.published(0)
    decide(line, 0)
    assert line.batches() == [(batch(1, 2), BatchStage.PUBLISHED)], "its purge is not durable yet"
    advanced(line, 0, [record(3)])
    decide(line, 0)
    line.aborted(0, [Failure(record(3), "timed out", retryable=True)])
    advanced(line, 0, [])
    assert line.batches() == []
    first = [stage for moved, stage in line.moves if moved == batch(1, 2)]
    assert first == [BatchStage.SELECTED, BatchStage.PUBLISHING, BatchStage.PUBLISHED, BatchStage.PURGED]
    second = [stage for moved, stage in line.moves if moved == batch(3)]
    assert second == [BatchStage.SELECTED, BatchStage.PUBLISHING, BatchStage.ABANDONED]


def test_attempts_end_with_a_delivery():
    line = machine()
    now = abort(line, 0.0, record(1), retryable=True)
    assert set(line.failed.attempts) == {(0, "k")}
    only(decide(line, now), Advance)
    advanced(line, now, [record(1)])
    only(decide(line, now), Publish)
    line.published(now)
    assert line.failed.attempts == {}


def test_nothing_is_begun_without_leadership():
    line = machine()
    assert decide(line, 0, leading=False) == []
    assert wake_at(line) == FOREVER
    decide(line, 0)
    advanced(line, 0, [record(1)])
    assert decide(line, 0, leading=False) == []
    assert wake_at(line) == FOREVER, "there is nothing to do before leadership is back"
    only(decide(line, 0), Publish)


def test_what_is_in_the_log_is_purged_also_without_leadership():
    line = machine()
    decide(line, 0)
    advanced(line, 0, [record(1)])
    decide(line, 0)
    line.published(0)
    assert wake_at(line) <= 1
    (advance,) = decide(line, 1, leading=False)
    assert (advance.finished, advance.limit) == ([batch(1)], 0)
    assert wake_at(line) == FOREVER
    advanced(line, 1, [])
    assert line.drained
    assert decide(line, 1, leading=False) == []
    assert wake_at(line) == FOREVER


def test_what_is_to_be_parked_waits_for_leadership_and_nobody_spins_meanwhile():
    line = machine(failures=Failures(park_after=1))
    decide(line, 0)
    advanced(line, 0, [record(1, "bad")])
    decide(line, 0)
    line.aborted(0, [Failure(record(1, "bad"), "too large", retryable=False)])
    only(decide(line, 0, leading=False), ReportFailures)
    assert wake_at(line) == FOREVER
    only(decide(line, 0), Park)


def test_a_pause_after_an_abort_holds_up_no_purge():
    line = machine()
    decide(line, 0)
    advanced(line, 0, [record(n) for n in (1, 2, 3, 4)])
    decide(line, 0)
    advanced(line, 0, [record(5)])
    line.published(0)
    commands = decide(line, 0)
    only(commands, Publish)
    advanced(line, 0, [])
    line.published(0)
    line._finished, line._full = [batch(9)], False
    line._resume = 10.0
    assert only(decide(line, 1), Advance).limit == 0


def finish(line, *numbers):
    """Has records selected and published, and returns the advance that purges them."""
    decide(line, 0)
    advanced(line, 0, [record(number) for number in numbers])
    decide(line, 0)
    line.published(0)
    line._select_first = False  # as out of a backlog
    return only(decide(line, 1), Advance)


def test_locked_rows_stay_in_the_checkpoint_and_are_purged_again_later():
    line = machine()
    finish(line, 1, 2, 3)
    advanced(line, 1, [record(4)], batch(2))
    assert named(only(decide(line, 1), Publish)) == [batch(2), batch(4)]
    line.published(1)
    again = only(decide(line, 1.5), Advance)
    assert (again.finished, again.pending) == ([], [batch(2), batch(4)]), "not tried yet, and not selected"
    advanced(line, 1.5, [])
    assert only(decide(line, 1.5), Advance).finished == [batch(4)]
    advanced(line, 1.5, [])
    assert wake_at(line) <= 1 + LOCKED_SECONDS
    last = only(decide(line, 1 + LOCKED_SECONDS), Advance)
    assert (last.finished, last.pending) == ([batch(2)], [])
    advanced(line, 2, [record(5)])
    assert named(only(decide(line, 2), Publish)) == [batch(5)]


def test_a_lane_is_not_drained_while_rows_are_locked():
    line = machine()
    finish(line, 1, 2, 3)
    line.drain()
    advanced(line, 1, [], batch(2))
    assert line.idle
    assert not line.drained
    assert only(decide(line, 1 + LOCKED_SECONDS, leading=False), Advance).finished == [batch(2)]
    advanced(line, 2, [])
    assert line.drained


def test_locked_rows_that_a_recovery_has_left_are_purged_first():
    line = machine(locked=[batch(7)])
    first = only(decide(line, 0), Advance)
    assert first.finished == [batch(7)]
    advanced(line, 0, [record(8)], batch(7))
    assert named(only(decide(line, 0), Publish)) == [batch(7), batch(8)]


def test_of_locked_rows_and_their_batches_the_shorter_are_kept():
    line = machine(Limits(max_batch_records=100_000))
    rows = [record(number) for number in range(1, 10_001)]
    line._sources.cut(0, 100_000)
    finish(line, *[each.id for each in rows])
    whole = Batch(((1, 10_000),), "now")
    odd = Batch.of(range(1, 10_000, 2), "now")
    advanced(line, 1, [record(10_001)], odd)
    assert named(only(decide(line, 1), Publish)) == [whole, batch(10_001)]


def scattered(number, start=0):
    """Returns records whose ids have no order that would make a checkpoint short."""
    chance = random.Random(start)
    ids = sorted(chance.sample(range(start, start + 40 * number), number))
    return [record(each) for each in ids]


def test_a_batch_that_does_not_fit_into_the_checkpoint_is_cut_and_the_next_is_no_larger(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("outbox_core.delivery.checkpoint.MAX_BATCH", 2000)
    line = machine(Limits(max_batch_records=100_000))
    decide(line, 0)
    line._database = Advance([], [], 8000, BYTES)
    rows = scattered(8000)
    advanced(line, 0, rows)
    commands = decide(line, 0)
    publish = only(commands, Publish)
    assert publish.records == rows[: len(publish.records)]
    assert 100 < len(publish.records) < 8000
    assert len(publish.checkpoint) <= MAX_CHECKPOINT
    assert named(publish) == [batch(*[each.id for each in publish.records])]
    assert only(commands, Advance).limit == len(publish.records)


def test_a_batch_waits_until_the_checkpoint_has_room(monkeypatch: pytest.MonkeyPatch):
    first, second, third = (scattered(1000, start) for start in (0, 1_000_000, 2_000_000))
    two = encode([batch(*[each.id for each in rows]) for rows in (first, second)])
    monkeypatch.setattr("outbox_core.delivery.exactly_once.MAX_CHECKPOINT", len(two) + 100)
    line = machine(Limits(max_batch_records=1000))
    line._sources.cut(0, 1000)
    decide(line, 0)
    advanced(line, 0, first)
    decide(line, 0)
    advanced(line, 0, second)
    line.published(0)
    commands = decide(line, 0)
    only(commands, Publish)
    assert only(commands, Advance).finished == [batch(*[each.id for each in first])]
    advanced(line, 0, third, *only(commands, Advance).finished)
    line.published(0)
    commands = decide(line, 0)
    none(commands, Publish)
    assert only(commands, Advance).finished == [batch(*[each.id for each in second])]
    assert wake_at(line) == FOREVER, "nobody spins meanwhile"
    advanced(line, 0, [])
    only(decide(line, 0), Publish)


def test_too_many_locked_rows_stop_selections(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("outbox_core.delivery.exactly_once.MAX_LOCKED", 1000)
    line = machine(locked=[batch(*[each.id for each in scattered(2000)])])
    advance = only(decide(line, 0), Advance)
    advanced(line, 0, [], *advance.finished)
    assert decide(line, 0.5) == []
    assert only(decide(line, LOCKED_SECONDS), Advance).finished == advance.finished


def test_a_batch_of_large_records_is_full_and_the_next_is_selected_meanwhile():
    line = machine(Limits(max_batch_records=1000, max_lane_bytes=4000))
    assert only(decide(line, 0), Advance).max_bytes == 2000
    advanced(line, 0, [record(n)._replace(value="x" * 320) for n in range(3)])
    none(decide(line, 0), Advance)
    line.published(0)
    only(decide(line, 0.1), Advance)
    advanced(line, 0.1, [record(n)._replace(value="ж" * 333) for n in range(3)])
    assert len(decide(line, 0.1)) == 2, "one to publish, and the next to select"


def test_a_drained_line_purges_what_it_published_and_begins_nothing():
    line = machine()
    decide(line, 0)
    advanced(line, 0, [record(n) for n in (1, 2, 3, 4)])
    decide(line, 0)
    line.drain()
    advanced(line, 0, [record(5)])
    assert decide(line, 0) == []
    line.published(0)
    assert only(decide(line, 0), Advance).limit == 0
    advanced(line, 0, [])
    assert line.drained
    assert decide(line, 9) == []


def test_batches_grow_with_the_backlog_and_shrink_when_they_take_long():
    line = machine(Limits(max_batch_records=1000))
    now, limits = 0.0, []
    for _ in range(6):
        advance = only(decide(line, now), Advance)
        limits.append(advance.limit)
        advanced(line, now, [record(n) for n in range(advance.limit)])
        only(decide(line, now), Publish)
        line._database = None  # the selection ahead is of no interest here
        line.published(now)
    assert limits == [100, 200, 400, 800, 1000, 1000]
    only(decide(line, now), Advance)
    advanced(line, now, [record(n) for n in range(1000)])
    decide(line, now)
    line._database = None
    line.published(now + 2 * LONG_SECONDS)
    assert only(decide(line, now + 1), Advance).limit == 500


def test_a_transaction_has_as_many_bytes_as_the_broker_takes_in_time():
    line = machine(Limits(max_batch_records=1000))
    rows = [record(n, f"k{n}")._replace(value="x" * 100_000) for n in range(100)]

    decide(line, 0)
    advanced(line, 0, rows)
    first = only(decide(line, 0), Publish)
    assert named(first) == [batch(0, 1)], "the limit of a first transaction"
    line.aborted(8, [Failure(rows[0], "timed out", retryable=True)])
    second = only(decide(line, 9), Publish)
    assert [each.id for each in second.records] == [1], "half as many bytes"
    line.published(11)
    commands = decide(line, 11)
    assert [each.id for each in only(commands, Publish).records] == [2], "what was read is not read again"
    assert only(commands, Advance).limit == 0


@dataclass
class Process:
    """One process's lane: its machine, its fence, its producer's epoch, and what it has out."""

    line: SelectPublishPurge
    token: int
    epoch: int
    out: list[list[object]] = field(default_factory=list)


@dataclass
class World:
    """A database and a broker in memory; processes come, go, and come back from the dead."""

    chance: random.Random
    sources: int = 1
    rows: dict[int, str] = field(default_factory=dict)
    locked: set[int] = field(default_factory=set)
    parked: set[int] = field(default_factory=set)
    token: int = 0
    epoch: int = 0
    checkpoint: str = encode([])
    log: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def start(self):
        """A process acquires: database fence, producer fence, checkpoint, recovery, in this order."""
        self.token += 1
        self.epoch += 1
        published, attempted = decode(self.checkpoint)
        if attempted:  # it may be aborted
            in_log = [number for number in attempted.ids() if number in self.delivered]
            published = [*published, Batch.of(in_log, attempted.newest)]
        locked = self.purge(published)
        self.checkpoint = encode(locked)
        line = SelectPublishPurge(LIMITS, FAILURES, self.chance.random, locked, [10.0] * self.sources)
        return Process(line, self.token, self.epoch)

    def purge(self, batches):
        """Deletes rows, and returns the batches of which some are locked."""
        for batch in batches:
            for number in batch.ids():
                assert number not in self.rows or number in self.delivered, "I2: only what is in the log"
                if number not in self.locked:
                    self.rows.pop(number, None)
        left = [[number for number in batch.ids() if number in self.rows] for batch in batches]
        return [Batch.of(ids, "now") for ids in left if ids]

    @property
    def delivered(self):
        return {number for ids in self.log.values() for number in ids}

    def effect(self, process, command):
        """Returns what the command comes to; ``None`` when it is refused."""
        if isinstance(command, Publish):
            if process.epoch != self.epoch:
                return None
            assert len(command.checkpoint) <= MAX_CHECKPOINT
            self.checkpoint = command.checkpoint
            poison = next((r for r in command.records if r.id % 17 == 0), None)
            if poison is not None or self.chance.random() < 0.1:
                return [Failure(poison or command.records[0], "no", retryable=poison is None)]
            for r in command.records:
                self.log[r.key].append(r.id)
            return []
        if process.token != self.token:
            return None
        if isinstance(command, Park):
            self.parked |= {p.id for p in command.poisons if p.id in self.rows}
            return len(command.poisons)
        locked = self.purge(command.finished)
        keys = {self.rows[i] for i in self.parked if i in self.rows}
        taken = {i for batch in (*command.finished, *command.pending) for i in batch.ids()}
        keys |= set(command.excluded_keys)
        ids = [i for i in sorted(self.rows) if i not in taken and self.rows[i] not in keys]
        ids = [i for i in ids if i // CLUSTER == command.source][: command.limit]
        return Advanced(0, [record(i, self.rows[i]) for i in ids], "now", locked)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("sources", [1, 3])
def test_every_record_is_in_the_log_once_and_in_order_whatever_fails(seed, sources):
    chance = random.Random(seed)
    world = World(chance, sources)
    processes = [world.start()]
    written = defaultdict(list)
    now, next_id = 0.0, 0
    for step in range(6000):
        calm = step > 1000
        now += chance.choice([0.001, 0.02, 0.6])
        if not calm and chance.random() < 0.3:
            next_id += chance.choice((1, 1, 3))
            key, source = chance.choice("abc"), chance.randrange(sources)
            world.rows[source * CLUSTER + next_id] = key
            written[source, key].append(source * CLUSTER + next_id)
        if not calm and chance.random() < 0.03:
            processes.append(world.start())  # a successor; whoever led before does not know
            processes = processes[-3:]
        if world.parked and chance.random() < 0.1:
            number = world.parked.pop()  # an operator skips the record
            if number in world.rows:
                written[number // CLUSTER, world.rows.pop(number)].remove(number)
        if chance.random() < 0.05:
            world.locked = set() if calm else set(chance.sample(sorted(world.rows), len(world.rows) // 3))
        process = processes[-1] if calm else chance.choice(processes)
        process.out += [
            [c, None, False] for c in decide(process.line, now) if not isinstance(c, ReportFailures)
        ]
        answer(world, process, now, calm)
        if process.line is None:
            processes.remove(process)
            processes.append(world.start())
        if calm and not world.rows and processes[-1].line.drained:
            break
    assert world.rows == {}, "I9: the outbox empties"
    log = [(number // CLUSTER, key, number) for key, ids in world.log.items() for number in ids]
    told = {each: [number for *where, number in log if (*where,) == each] for each in written}
    assert told == written, "I6: once, and in order"
    assert len(log) == sum(map(len, written.values()))


def answer(world, process, now, calm):
    """Lets some of what is out take effect, answers some of it; one lost answer ends the lane."""
    world.chance.shuffle(process.out)
    for each in list(process.out):
        if not calm and world.chance.random() < 0.5:
            continue
        command, result, done = each
        if not done:
            each[1:] = result, done = world.effect(process, command), True
            if not calm and world.chance.random() < 0.5:
                continue  # the answer takes its time
        process.out.remove(each)
        if result is None or (not calm and world.chance.random() < 0.05):
            process.line = None  # fenced, or the outcome is unknown: the lane starts anew
            return
        if isinstance(command, Publish):
            process.line.aborted(now, result) if result else process.line.published(now)
        elif isinstance(command, Park):
            process.line.parked(now, result)
        else:
            process.line.advanced(now, result)
