"""Coalescing as a decision: what is superseded, when a lane looks, and what it leaves out."""

from __future__ import annotations

import logging
from typing import Any
from uuid import uuid4

import pytest
from outbox_api import (
    Advanced,
    Batch,
    Failure,
    Fence,
    MarkedRecord,
    Outline,
    Outlined,
    PermittedTopics,
)
from outbox_core.delivery.at_least_once import MarkPurgeReset
from outbox_core.delivery.coalescing import (
    LEAST_ROWS,
    LONG_SECONDS,
    MOST_REST,
    MOST_ROWS,
    QUIET_SECONDS,
    Coalesce,
    Coalesced,
    Coalescing,
)
from outbox_core.delivery.commands import Advance, Publish
from outbox_core.delivery.exactly_once import SelectPublishPurge
from outbox_core.lanes.database import Database
from outbox_core.lanes.telemetry import Telemetry
from outbox_core.settings import Failures, Limits

FOREVER = float("inf")
TOPICS = ("state.*",)
FEW = Limits(mark_query_records=2, max_batch_records=2)


def outline(*rows):
    """Makes an outline of ``key`` or ``(key, topic, partition)``, with the ids 1, 2, …."""
    places = [("t", row, None) if isinstance(row, str) else (row[1], row[0], row[2]) for row in rows]
    return Outline(
        [Outlined(number, *place) for number, place in enumerate(places, 1)], len(rows), len(rows), "now"
    )


def superseded(found, **left_out):
    return Coalesce(0, 10, TOPICS, **left_out).superseded(found).ids()


def records(*numbers, key="k"):
    return [MarkedRecord(number, "state.a", key, "v") for number in numbers]


# --- what is superseded --------------------------------------------------------------------------------


def test_all_but_the_newest_of_a_key_are_superseded():
    assert superseded(outline("a", "b", "a", "c", "b", "a")) == [1, 2, 3]
    assert superseded(outline()) == superseded(outline("a", "b")) == []


def test_a_key_is_one_of_its_topic_and_partition():
    rows = (("a", "t", None), ("a", "u", None), ("a", "t", 0), ("a", "t", 1), ("a", "t", 0))
    assert superseded(outline(*rows)) == [3]


def test_a_batch_of_superseded_rows_knows_the_newest_time():
    assert Coalesce(0, 10, TOPICS).superseded(outline("a", "a")) == Batch(((1, 1),), "now")


def test_keys_that_failed_are_left_out():
    found = outline("a", "b", "a", "b", "c", "c", "c")
    assert superseded(found, keys={"a"}) == [2, 5, 6]


# --- when to look --------------------------------------------------------------------------------------


def test_nothing_is_looked_for_without_topics_or_backlog():
    assert Coalescing().due(backlog=True) == FOREVER
    assert Coalescing(TOPICS).due(backlog=False) == FOREVER
    assert Coalescing(TOPICS).due(backlog=True) == 0.0


def test_looks_go_on_behind_each_other_and_begin_at_the_head_again():
    coalescing = Coalescing(TOPICS)
    assert coalescing.begin(0.0, ()).after == 0
    coalescing.ended(0.1, Coalesced(777, MOST_ROWS, MOST_ROWS))
    assert coalescing.begin(0.2, ()).after == 777
    coalescing.ended(0.3, Coalesced(900, 10, 10))
    assert coalescing.begin(0.4, ()).after == 0


def test_a_look_begins_behind_the_batches():
    coalescing = Coalescing(TOPICS)
    look = coalescing.begin(0.0, (), [Batch.of([5, 6, 9]), Batch.of([2])])
    assert look.after == 9
    coalescing.ended(0.0, Coalesced(20, MOST_ROWS, 1))
    assert coalescing.begin(0.0, (), [Batch.of([5])]).after == 20


def test_marks_have_half_of_the_time_and_more_where_looks_bring_nothing():
    coalescing, now = Coalescing(TOPICS), 0.0
    pauses = []
    for superseded_rows in (100, 100, 9, 0, 0, 0, 0, 0, 0, 0, 10):
        coalescing.begin(now, ())
        now += 0.25
        coalescing.ended(now, Coalesced(0, 100, superseded_rows))
        pauses.append((coalescing.due(backlog=True) - now) / 0.25)
        now = coalescing.due(backlog=True)
    assert pauses == [1, 1, 2, 4, 8, 16, 32, MOST_REST, MOST_REST, MOST_REST, 1]


def test_long_looks_read_less_and_short_ones_more():
    coalescing, limits = Coalescing(TOPICS), []
    for seconds in (LONG_SECONDS + 0.1,) * 7 + (0.1,) * 7:
        look = coalescing.begin(0.0, ())
        limits.append(look.limit)
        coalescing.ended(seconds, Coalesced(1, look.limit, look.limit))
    assert limits[:3] == [MOST_ROWS, MOST_ROWS // 2, MOST_ROWS // 4]
    assert min(limits) == LEAST_ROWS
    assert coalescing.begin(0.0, ()).limit == MOST_ROWS
    coalescing.ended(0.1, Coalesced(1, 5, 5))
    assert coalescing.begin(0.0, ()).limit == MOST_ROWS


def test_a_backlog_is_told_of_when_it_begins_and_when_it_has_ended():
    coalescing = Coalescing(TOPICS)
    told = [coalescing.ended(0.0, Coalesced(0, 10, number)) for number in (0, 4, 0, 3)]
    assert told == [False, True, False, False]
    assert coalescing.quiet(QUIET_SECONDS - 0.1) == 0
    assert [coalescing.quiet(QUIET_SECONDS) for _ in range(2)] == [7, 0]
    assert coalescing.ended(20.0, Coalesced(0, 10, 1))


# --- at-least-once delivery ----------------------------------------------------------------------------


def marking(**more):
    machine = MarkPurgeReset(FEW, Failures(), uuid4, lambda: 0.5, coalesced=TOPICS, **more)
    machine.look(0.0)
    return machine


def test_a_lane_looks_where_a_mark_was_full():
    machine = marking()
    assert machine.coalesce_due() == FOREVER
    machine.next_mark(0.0)
    assert machine.coalesce_due() == FOREVER, "never beside a mark"
    machine.marked(0.0, records(1, 2))
    assert machine.coalesce_due() == 0.0
    machine.next_mark(0.0)
    machine.marked(0.0, records(3))
    assert machine.coalesce_due() == FOREVER


def full():
    machine = marking()
    machine.next_mark(0.0)
    machine.marked(0.0, [*records(1, key="a"), *records(2, key="b")])
    return machine


def test_a_lane_does_not_look_without_leadership_or_while_it_drains():
    machine = full()
    machine.look(0.0, leading=False)
    assert machine.coalesce_due() == FOREVER
    machine = full()
    machine.drain()
    assert machine.coalesce_due() == FOREVER


def test_keys_are_left_out_from_their_failure_to_their_next_delivery():
    machine = full()
    first, _ = machine.next_to_send().alone
    machine.failed([Failure(first, "no", retryable=True)])
    machine.take_failed(0.0)
    assert machine.next_coalesce(0.0).keys == {"a"}
    machine.look(50.0)
    machine.next_unhold(50.0)
    machine.reset_done(50.0)
    assert not machine.scoreboard.held.keys
    assert machine.next_coalesce(50.0).keys == {"a"}


def test_an_unknown_outcome_leads_to_a_remark():
    machine = full()
    machine.next_coalesce(0.0)
    machine.coalesce_unknown(0.0)
    machine.look(1.0)
    assert machine.coalesce_due() == FOREVER
    assert machine.may_refresh


# --- exactly-once delivery -----------------------------------------------------------------------------


def next_of(line: SelectPublishPurge, now: float = 0.0) -> Any:
    """Returns what is due at the database."""
    return line.next_for_database(now)


def test_a_lane_looks_between_selections_behind_its_batches():
    line = SelectPublishPurge(FEW, Failures(), lambda: 0.5, coalesced=TOPICS)
    line.look(leading=True)
    assert isinstance(next_of(line), Advance)
    line.advanced(0.0, Advanced(0, records(1, 2), "now"))
    look = next_of(line)
    assert isinstance(look, Coalesce)
    assert look.after == 2
    assert line.database_due() == FOREVER
    line.coalesced(1.0, Coalesced(9, MOST_ROWS, MOST_ROWS))
    assert isinstance(line.next_to_publish(1.0), Publish)
    assert isinstance(next_of(line, 1.5), Advance), "marks have as much time as looks"
    line.advanced(2.0, Advanced(0, records(3, 4), "now"))
    assert next_of(line, 2.0).after == 9
    line.coalesced(2.0, Coalesced(9, 10, 7))
    line.aborted(2.0, [Failure(records(1)[0], "no", retryable=True)])
    line.drain()
    assert line.database_due() == FOREVER


def test_a_key_that_failed_in_a_batch_is_left_out():
    line = SelectPublishPurge(FEW, Failures(first_backoff=9.0), lambda: 0.5, coalesced=TOPICS)
    line.look(leading=True)
    next_of(line)
    bad, good = records(1, key="a")[0], records(2, key="b")[0]
    line.advanced(0.0, Advanced(0, [bad, good], "now"))
    assert next_of(line).keys == frozenset()
    line.coalesced(0.0, Coalesced(0, 0, 0))
    line.next_to_publish(0.0)
    line.aborted(0.0, [Failure(bad, "no", retryable=True)])
    assert next_of(line).keys == {"a"}


def test_an_answer_that_nobody_waits_for_is_refused():
    line = SelectPublishPurge(FEW, Failures(), lambda: 0.5, coalesced=TOPICS)
    with pytest.raises(TypeError):
        line.coalesced(0.0, Coalesced(0, 0, 0))


# --- the lane ------------------------------------------------------------------------------------------


class Table:
    """An outbox with an outline."""

    def __init__(self, *rows):
        self.found = outline(*rows)
        self.deleted = []

    def outline(self, fence, after, limit, topics):
        assert (after, limit, topics) == (3, 10, TOPICS)
        return self.found

    def supersede(self, fence, batch):
        self.deleted.append(batch)
        return batch.rows


@pytest.mark.parametrize(("rows", "deleted"), [(("a", "b", "a"), [[1]]), (("a", "b"), [])])
def test_only_what_is_superseded_is_deleted(rows, deleted):
    table: Any = Table(*rows)
    database = Database(lambda: table, PermittedTopics())
    found = database.coalesce(Fence(0, 1, 1, 1), Coalesce(3, 10, TOPICS))
    assert [batch.ids() for batch in table.deleted] == deleted
    assert found == Coalesced(len(rows), len(rows), len(deleted))


def test_superseded_records_are_counted_and_told_of(caplog, logged):
    telemetry = Telemetry(3, 1.0, 0.0)
    with caplog.at_level(logging.INFO):
        telemetry.coalesced(Coalesced(0, 9, 5), 0.1, is_first=True)
        telemetry.coalesced(Coalesced(0, 9, 2000), 0.1, is_first=False)
        telemetry.no_longer_coalesced(0)
        telemetry.no_longer_coalesced(2005)
        telemetry.write_lines()
    assert telemetry.metrics.superseded == 2005
    assert [record.getMessage() for record in logged("outbox.lanes")] == [
        "lane 3: a backlog waits: only the newest records of its keys are sent",
        "lane 3: 2,005 records were not sent, as later ones of their keys waited",
    ]
