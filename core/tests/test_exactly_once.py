"""Exactly-once delivery as a state machine: its rules one by one, and a world that fails at random."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from outbox_core.config.settings import Failures, Limits
from outbox_core.delivery.commands import Advance, Park, Publish, ReportFailures
from outbox_core.delivery.exactly_once import LONG_SECONDS, TransactionalMarkPurge
from outbox_core.delivery.stages import BatchStage
from outbox_sdk import Batch, Failure, MarkedRecord

LIMITS = Limits(max_batch_records=4)
FOREVER = float("inf")
BYTES = LIMITS.max_lane_bytes // 2
FAILURES = Failures(first_backoff=0.1, longest_backoff=0.5, park_after=3)


def leader_ids():
    count = 0
    while True:
        count += 1
        yield UUID(int=count)


def machine(limits=LIMITS, failures=FAILURES):
    return TransactionalMarkPurge(limits, failures, leader_ids().__next__, lambda: 0.5)


def record(number, key="k", fault=None):
    return MarkedRecord(number, "topic", key, "value", fault=fault)


def advanced(line, now, records):
    """Answers an advance whose purges found all there was to find."""
    line.advanced(now, records, sum(line._purging.values()))


def only(commands, kind):
    (found,) = [command for command in commands if isinstance(command, kind)]
    return found


def none(commands, kind):
    assert not [command for command in commands if isinstance(command, kind)]


def test_a_batch_is_marked_published_and_purged_with_the_next_mark():
    line = machine()
    advance = only(line.decide(0), Advance)
    assert advance == Advance([], UUID(int=1), 4, [], BYTES)
    advanced(line, 0, [record(1), record(2)])
    publish = only(line.decide(0), Publish)
    batch = Batch(UUID(int=1), 1, 2)
    assert [r.id for r in publish.records] == [1, 2]
    assert publish.checkpoint == [batch]
    none(line.decide(1), Advance)
    line.published(1)
    assert only(line.decide(1), Advance) == Advance([batch], UUID(int=2), 4, [], BYTES)
    assert not line.drained
    advanced(line, 1, [])
    assert line.drained


def test_out_of_a_backlog_the_next_batch_is_marked_while_one_is_published():
    line = machine()
    line.decide(0)
    advanced(line, 0, [record(n) for n in (1, 2, 3, 4)])
    commands = line.decide(0)
    only(commands, Publish)
    ahead = only(commands, Advance)
    assert ahead.pending == [UUID(int=1)], "what is being published is not marked again"
    advanced(line, 0, [record(n) for n in (5, 6, 7, 8)])
    none(line.decide(0), Publish)
    line.published(0)
    commands = line.decide(0)
    first, second = Batch(UUID(int=1), 1, 4), Batch(UUID(int=2), 5, 8)
    assert only(commands, Publish).checkpoint == [first, second], "the first is not purged yet"
    assert only(commands, Advance) == Advance([first], UUID(int=3), 4, [second.leader_id], BYTES)
    line.published(0)
    advanced(line, 0, [record(9)])
    assert only(line.decide(0), Publish).checkpoint == [second, Batch(UUID(int=3), 9, 9)]


def test_a_purge_that_is_out_keeps_its_batch_in_the_checkpoint():
    line = machine()
    line.decide(0)
    advanced(line, 0, [record(1)])
    line.decide(0)
    line.published(0)
    only(line.decide(0), Advance)
    advanced(line, 0, [record(2), record(3), record(4), record(5)])
    line.decide(0)
    assert line.in_flight == 4


def test_after_an_abort_all_is_marked_anew_under_names_never_used():
    line = machine()
    line.decide(0)
    advanced(line, 0, [record(n) for n in (1, 2, 3, 4)])
    only(line.decide(0), Advance)
    failure = Failure(record(2), "timed out", retryable=True)
    line.aborted(0, [failure])
    assert only(line.decide(0), ReportFailures).failures == [failure]
    advanced(line, 0, [record(5)])
    assert line.waiting == 0, "what was marked behind the aborted batch must not pass it"
    assert line.decide(0.05) == [], "a pause comes first"
    again = only(line.decide(0.1), Advance)
    assert again.pending == []
    assert again.leader_id == UUID(int=3)


def abort(line, now, culprit, *rest, retryable=False):
    """Marks and publishes some records, of which the first fails; returns what follows and when."""
    only(line.decide(now), Advance)
    advanced(line, now, [culprit, *rest])
    only(line.decide(now), Publish)
    line.aborted(now, [Failure(culprit, "too large", retryable=retryable)])
    now = max(now, line.wake_at())
    line.decide(now) if line._resume > now else None
    return max(now, line._resume)


def test_a_record_that_is_refused_too_often_has_its_key_parked():
    line = machine()
    now = 0.0
    for _ in range(2):
        now = abort(line, now, record(1, "bad"), record(2, "good"), record(3, "bad"))
    only(line.decide(now), Advance)
    name = line._database.leader_id
    advanced(line, now, [record(1, "bad"), record(2, "good"), record(3, "bad")])
    only(line.decide(now), Publish)
    line.aborted(now, [Failure(record(1, "bad"), "too large", retryable=False)])
    park = only(line.decide(now), Park)
    assert (park.leader_id, park.ids) == (name, [1, 3])
    assert [(poison.id, poison.attempts) for poison in park.poisons] == [(1, 3)]
    line.parked(now, 1)
    assert line.policy.parked == 1
    only(line.decide(now), Advance)


def test_a_faulty_row_is_never_published():
    line = machine()
    line.decide(0)
    advanced(line, 0, [record(1), record(2, "bad", fault="header arrays differ in length")])
    commands = line.decide(0)
    none(commands, Publish)
    assert only(commands, ReportFailures).failures[0].reason == "header arrays differ in length"


def test_what_time_does_not_cure_is_tried_again_at_once_and_in_a_small_batch():
    line = machine(Limits(max_batch_records=1000))
    now = 0.0
    for _ in range(3):
        size = only(line.decide(now), Advance).limit
        advanced(line, now, [record(n) for n in range(size)])
        only(line.decide(now), Publish)
        line._database = None
        line.published(now)
    only(line.decide(now), Advance)
    advanced(line, now, [record(1, "bad"), record(2)])
    only(line.decide(now), Publish)
    line.aborted(now, [Failure(record(1, "bad"), "too large", retryable=False)])
    assert only(line.decide(now), Advance).limit == 100


def test_what_lies_before_the_culprit_is_published_and_not_parked_with_it():
    line = machine(Limits(max_batch_records=1000), Failures(park_after=2))
    line.decide(0)
    good, bad, rest = record(1), record(2), record(3)
    advanced(line, 0, [good, bad, rest])
    only(line.decide(0), Publish)
    line.aborted(0, [Failure(bad, "too large", retryable=False)])
    commands = line.decide(0)
    none(commands, Park)
    assert only(commands, Advance).limit == 1
    advanced(line, 0, [good])
    only(line.decide(0), Publish)
    line._database = None
    line.published(0)
    only(line.decide(0), Advance)
    advanced(line, 0, [bad, rest])
    only(line.decide(0), Publish)
    line._database = None
    line.aborted(0, [Failure(bad, "too large", retryable=False)])
    park = only(line.decide(0), Park)
    assert park.ids == [2, 3]
    assert [(poison.id, poison.attempts) for poison in park.poisons] == [(2, 2)]


def test_what_cannot_be_parked_any_more_is_not_tried_without_end():
    line = machine(failures=Failures(first_backoff=0.1, park_after=1, most_parked_keys=0))
    now = abort(line, 0.0, record(1, "bad"))
    assert now == pytest.approx(0.1)
    none(line.decide(0.05), Advance)
    only(line.decide(now), Advance)


def test_the_life_of_each_batch_is_told():
    line = machine()
    line.decide(0)
    advanced(line, 0, [record(1), record(2)])
    assert line.batches() == [(UUID(int=1), 2, BatchStage.MARKED)]
    line.decide(0)
    assert line.batches() == [(UUID(int=1), 2, BatchStage.PUBLISHING)]
    line.published(0)
    line.decide(0)
    assert line.batches() == [(UUID(int=1), 2, BatchStage.PUBLISHED)], "its purge is not durable yet"
    advanced(line, 0, [record(3)])
    line.decide(0)
    line.aborted(0, [Failure(record(3), "timed out", retryable=True)])
    assert line.batches() == []
    first = [stage for name, _, stage in line.moves if name == UUID(int=1)]
    assert first == [BatchStage.MARKED, BatchStage.PUBLISHING, BatchStage.PUBLISHED, BatchStage.PURGED]
    second = [stage for name, _, stage in line.moves if name == UUID(int=2)]
    assert second == [BatchStage.MARKED, BatchStage.PUBLISHING, BatchStage.ABANDONED]


def test_attempts_end_with_a_delivery():
    line = machine()
    now = abort(line, 0.0, record(1), retryable=True)
    assert set(line.attempts) == {"k"}
    only(line.decide(now), Advance)
    advanced(line, now, [record(1)])
    only(line.decide(now), Publish)
    line.published(now)
    assert line.attempts == {}


def test_nothing_is_begun_without_leadership():
    line = machine()
    assert line.decide(0, leading=False) == []
    assert line.wake_at() == FOREVER
    line.decide(0)
    advanced(line, 0, [record(1)])
    assert line.decide(0, leading=False) == []
    assert line.wake_at() == FOREVER, "there is nothing to do before leadership is back"
    only(line.decide(0), Publish)


def test_what_is_in_the_log_is_purged_also_without_leadership():
    line = machine()
    line.decide(0)
    advanced(line, 0, [record(1)])
    line.decide(0)
    line.published(0)
    assert line.wake_at() <= 1
    (advance,) = line.decide(1, leading=False)
    assert (advance.finished, advance.limit) == ([Batch(UUID(int=1), 1, 1)], 0)
    assert line.wake_at() == FOREVER
    advanced(line, 1, [])
    assert line.drained
    assert line.decide(1, leading=False) == []
    assert line.wake_at() == FOREVER


def test_what_is_to_be_parked_waits_for_leadership_and_nobody_spins_meanwhile():
    line = machine(failures=Failures(park_after=1))
    line.decide(0)
    advanced(line, 0, [record(1, "bad")])
    line.decide(0)
    line.aborted(0, [Failure(record(1, "bad"), "too large", retryable=False)])
    only(line.decide(0, leading=False), ReportFailures)
    assert line.wake_at() == FOREVER
    only(line.decide(0), Park)


def test_a_pause_after_an_abort_holds_up_no_purge():
    line = machine()
    line.decide(0)
    advanced(line, 0, [record(n) for n in (1, 2, 3, 4)])
    line.decide(0)
    advanced(line, 0, [record(5)])
    line.published(0)
    commands = line.decide(0)
    only(commands, Publish)
    advanced(line, 0, [])
    line.published(0)
    line._finished, line._full = {Batch(UUID(int=9), 9, 9): 1}, False
    line._resume = 10.0
    assert only(line.decide(1), Advance).limit == 0


def finish(line, *numbers):
    """Has records marked and published, and returns the advance that purges them."""
    line.decide(0)
    advanced(line, 0, [record(number) for number in numbers])
    line.decide(0)
    line.published(0)
    return only(line.decide(1), Advance)


def test_a_purge_that_was_cut_short_is_repeated_and_its_batch_stays_in_the_checkpoint():
    line = machine()
    first = finish(line, 1, 2, 3)
    line.advanced(1, [record(4)], 1)
    assert only(line.decide(1), Publish).checkpoint == [*first.finished, Batch(first.leader_id, 4, 4)]
    again = only(line.decide(2), Advance)
    assert (again.finished, again.limit) == (first.finished, 0)
    line.published(2)
    line.advanced(2, [], 1)
    third = only(line.decide(3), Advance)
    assert third.finished == [*first.finished, Batch(first.leader_id, 4, 4)]
    assert not [move for move in line.moves if move[2] is BatchStage.PURGED]
    line.advanced(3, [], 2)
    assert [number for _, number, stage in line.moves if stage is BatchStage.PURGED] == [3, 1]
    assert only(line.decide(4), Advance).finished == []


def test_rows_that_somebody_else_has_deleted_are_not_waited_for():
    line = machine()
    first = finish(line, 1, 2, 3)
    line.advanced(1, [], 2)
    assert only(line.decide(2), Advance).finished == first.finished
    line.advanced(2, [], 0)
    assert line.drained
    assert only(line.decide(3), Advance).finished == []


def test_a_drained_line_is_not_settled_before_its_purge_is_complete():
    line = machine()
    finish(line, 1, 2, 3)
    line.drain()
    line.advanced(1, [], 2)
    assert not line.drained
    only(line.decide(1, leading=False), Advance)
    line.advanced(2, [], 1)
    assert line.drained


def test_a_batch_of_large_records_is_full_and_the_next_is_marked_meanwhile():
    line = machine(Limits(max_batch_records=1000, max_lane_bytes=4000))
    assert only(line.decide(0), Advance).max_bytes == 2000
    advanced(line, 0, [record(n)._replace(value="x" * 330) for n in range(3)])
    none(line.decide(0), Advance)
    line.published(0)
    only(line.decide(0.1), Advance)
    advanced(line, 0.1, [record(n)._replace(value="ж" * 333) for n in range(3)])
    assert len(line.decide(0.1)) == 2, "one to publish, and the next to mark"


def test_a_drained_line_purges_what_it_published_and_begins_nothing():
    line = machine()
    line.decide(0)
    advanced(line, 0, [record(n) for n in (1, 2, 3, 4)])
    line.decide(0)
    line.drain()
    advanced(line, 0, [record(5)])
    assert line.decide(0) == []
    line.published(0)
    assert only(line.decide(0), Advance).limit == 0
    advanced(line, 0, [])
    assert line.drained
    assert line.decide(9) == []


def test_batches_grow_with_the_backlog_and_shrink_when_they_take_long():
    line = machine(Limits(max_batch_records=1000))
    now, limits = 0.0, []
    for _ in range(6):
        advance = only(line.decide(now), Advance)
        limits.append(advance.limit)
        advanced(line, now, [record(n) for n in range(advance.limit)])
        only(line.decide(now), Publish)
        line._database = None  # the mark ahead is of no interest here
        line.published(now)
    assert limits == [100, 200, 400, 800, 1000, 1000]
    only(line.decide(now), Advance)
    advanced(line, now, [record(n) for n in range(1000)])
    line.decide(now)
    line._database = None
    line.published(now + 2 * LONG_SECONDS)
    assert only(line.decide(now + 1), Advance).limit == 500


@dataclass
class Process:
    """One process's lane: its machine, its fence, its producer's epoch, and what it has out."""

    line: TransactionalMarkPurge
    token: int
    epoch: int
    out: list[list[object]] = field(default_factory=list)


@dataclass
class World:
    """A database and a broker in memory; processes come, go, and come back from the dead."""

    chance: random.Random
    fresh: Iterator[UUID] = field(default_factory=leader_ids)
    rows: dict[int, str] = field(default_factory=dict)
    leader: dict[int, UUID] = field(default_factory=dict)
    parked: set[int] = field(default_factory=set)
    token: int = 0
    epoch: int = 0
    checkpoint: list[Batch] = field(default_factory=list)
    log: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def start(self):
        """A process acquires: database fence, producer fence, checkpoint, recovery, in this order."""
        self.token += 1
        self.epoch += 1
        for batch in self.checkpoint:
            self.purge(batch)
        line = TransactionalMarkPurge(LIMITS, FAILURES, self.fresh.__next__, self.chance.random)
        return Process(line, self.token, self.epoch)

    def purge(self, batch, most=None):
        """Deletes rows, and returns how many; the database may cut that short."""
        found = [i for i in self.rows if self.leader.get(i) == batch.leader_id][:most]
        for i in found:
            assert batch.first <= i <= batch.last
            del self.rows[i], self.leader[i]
        return len(found)

    def effect(self, process, command):
        """Returns what the command comes to; ``None`` when it is refused."""
        if isinstance(command, Publish):
            if process.epoch != self.epoch:
                return None
            poison = next((r for r in command.records if r.id % 17 == 0), None)
            if poison is not None or self.chance.random() < 0.1:
                return [Failure(poison or command.records[0], "no", retryable=poison is None)]
            for r in command.records:
                self.log[r.key].append(r.id)
            self.checkpoint = list(command.checkpoint)
            return []
        if process.token != self.token:
            return None
        if isinstance(command, Park):
            self.parked |= {p.id for p in command.poisons if self.leader.get(p.id) == command.leader_id}
            return len(command.poisons)
        most = self.chance.choice([None, None, None, 1, 2])
        purged = sum(self.purge(batch, most) for batch in command.finished)
        keys = {self.rows[i] for i in self.parked if i in self.rows}
        taken = {*command.pending, command.leader_id, *(batch.leader_id for batch in command.finished)}
        ids = [i for i in sorted(self.rows) if self.leader.get(i) not in taken and self.rows[i] not in keys]
        ids = ids[: command.limit]
        self.leader.update(dict.fromkeys(ids, command.leader_id))
        return [record(i, self.rows[i]) for i in ids], purged


@pytest.mark.parametrize("seed", range(80))
def test_every_record_is_in_the_log_once_and_in_order_whatever_fails(seed):
    chance = random.Random(seed)
    world = World(chance)
    processes = [world.start()]
    written = defaultdict(list)
    now, next_id = 0.0, 0
    for step in range(6000):
        calm = step > 1000
        now += chance.choice([0.001, 0.02, 0.6])
        if not calm and chance.random() < 0.3:
            next_id += chance.choice((1, 1, 3))
            key = chance.choice("abc")
            world.rows[next_id] = key
            written[key].append(next_id)
        if not calm and chance.random() < 0.03:
            processes.append(world.start())  # a successor; whoever led before does not know
            processes = processes[-3:]
        if world.parked and chance.random() < 0.1:
            number = world.parked.pop()  # an operator skips the record
            if number in world.rows:
                written[world.rows.pop(number)].remove(number)
                world.leader.pop(number, None)
        process = processes[-1] if calm else chance.choice(processes)
        process.out += [
            [c, None, False] for c in process.line.decide(now) if not isinstance(c, ReportFailures)
        ]
        answer(world, process, now, calm)
        if process.line is None:
            processes.remove(process)
            processes.append(world.start())
        if calm and not world.rows and processes[-1].line.drained:
            break
    assert world.rows == {}, "I9: the outbox empties"
    assert dict(world.log) == {key: ids for key, ids in written.items() if ids}, "I6: once, and in order"


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
            process.line.advanced(now, *result)
