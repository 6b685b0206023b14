"""Marks and selections take rows of one source; those that must have an age come as a prefix."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from outbox_api import Batch, ColumnIs, Origin
from outbox_postgres.settled import FIRST

from .outbox_hands import Hand, MakeOutbox, Outbox, ask

OWN, OTHERS = ColumnIs("cluster_id", 1), ColumnIs("cluster_id", 2, 60.0)
ORIGIN = Origin(column="cluster_id", own=1, known=(1, 2))
INDEX = "CREATE INDEX outbox_cluster_id_id ON outbox (cluster_id, id)"
WRITE = """
INSERT INTO outbox (id, create_time, kafka_topic, kafka_key, kafka_value, cluster_id)
VALUES (%s, now() - make_interval(secs => %s), 'orders', %s, 'v', %s)
"""


@pytest.fixture(params=[True, False], ids=["indexed", "not indexed"])
def box(request: pytest.FixtureRequest, make_outbox: MakeOutbox) -> Outbox:
    """An outbox of cluster 1 of two, with the index or without."""
    made = make_outbox(origin=ORIGIN)
    make_outbox().dialect.create()
    made.admin.execute("ALTER TABLE outbox ADD COLUMN cluster_id INTEGER NOT NULL DEFAULT 1")
    if request.param:
        made.admin.execute(INDEX)
    return made


def write(box: Outbox, number: int, *, age: float, key: str = "k", cluster: int = 2) -> None:
    box.admin.execute(WRITE, (number, age, key, cluster))


def marked(box: Outbox, lanes: int = 1) -> Callable[..., list[int]]:
    hands = [box.lead(lane, lanes, [OWN, OTHERS]) for lane in range(lanes)]
    return hands[0].ids


def selected(box: Outbox) -> Callable[..., list[int]]:
    return box.lead_batches(eligible=[OWN, OTHERS])[0].ids


@pytest.mark.parametrize("take", [marked, selected])
@pytest.mark.parametrize("max_bytes", [2**62, 10**6])
def test_a_source_with_an_age_is_taken_up_to_the_first_row_that_is_too_young(
    box: Outbox, take: Callable[[Outbox], Callable[..., list[int]]], max_bytes: int
) -> None:
    ids = take(box)
    for number, age in (1, 90), (2, 70), (3, 50), (4, 90):
        write(box, number, age=age)
    write(box, 5, age=0, cluster=1)
    write(box, 6, age=9000, cluster=3)
    assert ids(max_bytes=max_bytes, source=1) == [1, 2], "row 4 is old enough, and waits for row 3"
    assert ids(max_bytes=max_bytes) == [5]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_limit_and_an_age_hold_both(box: Outbox, limit: int) -> None:
    for number in range(1, 5):
        write(box, number, age=90 if number < 3 else 10)
    assert marked(box)(limit, source=1) == [1, 2][:limit]


def test_a_bound_on_bytes_and_an_age_hold_both(box: Outbox) -> None:
    for number in range(1, 5):
        write(box, number, age=90 if number < 4 else 10)
    row = ask(
        box.admin, "SELECT octet_length(kafka_topic || kafka_key || kafka_value) FROM outbox WHERE id = 1"
    )
    one = row + ask(box.admin, "SELECT 2 * pg_column_size(kafka_header_keys) FROM outbox WHERE id = 1")
    ids = marked(box)
    assert ids(max_bytes=2 * one, source=1) == [1, 2]
    assert ids(max_bytes=2 * one, source=1) == [3]
    select = selected(box)
    assert select(max_bytes=2 * one, source=1) == [1, 2]
    assert select(max_bytes=9 * one, source=1) == [1, 2, 3]


def test_a_young_row_of_a_key_that_is_left_out_stops_it_too(box: Outbox) -> None:
    write(box, 1, age=10, key="left out")
    write(box, 2, age=90)
    assert marked(box)(source=1, excluded=["left out"]) == []


def test_the_age_counts_from_the_column_that_the_source_names(box: Outbox) -> None:
    box.admin.execute("ALTER TABLE outbox ADD COLUMN arrival TIMESTAMPTZ")
    for number in range(1, 4):
        write(box, number, age=90)
    box.admin.execute("UPDATE outbox SET arrival = now() - interval '70 s' WHERE id = 1")
    box.admin.execute("UPDATE outbox SET arrival = now() WHERE id = 3")
    hand = box.lead(eligible=[OWN, ColumnIs("cluster_id", 2, 60.0, "arrival")])
    assert hand.ids(source=1) == [1, 2], "without a time of arrival the age counts from creation"


def test_a_source_taken_over_needs_no_age(box: Outbox) -> None:
    write(box, 1, age=0)
    hand = box.lead(eligible=[OWN, ColumnIs("cluster_id", 2, 0.0)])
    assert hand.ids() == []
    assert hand.ids(source=1) == [1]


def settled_start(hand: Hand) -> int:
    assert hand.table._starts.settled
    return hand.table._starts.settled._start


@pytest.mark.usefixtures("eager")
def test_marks_of_own_rows_start_behind_what_is_settled_whatever_ids_others_have(box: Outbox) -> None:
    write(box, 10**15, age=0)
    box.fill(20)
    hand = box.lead(eligible=[OWN, OTHERS])
    assert hand.ids(1) == [1]  # reads what a listing rests on
    assert hand.ids(10) == [*range(2, 12)]
    assert settled_start(hand) == 12
    assert hand.ids(source=1) == []
    assert hand.ids(9) == [*range(12, 21)]
    assert hand.ids() == []
    assert settled_start(hand) == 21, "ids of others prove nothing about the own ones"
    box.fill(1)
    assert hand.ids() == [21]


@pytest.mark.usefixtures("eager")
def test_a_late_row_of_another_cluster_is_found_behind_later_ones(box: Outbox) -> None:
    hand = box.lead(eligible=[OWN, ColumnIs("cluster_id", 2)])
    for number in 7, 9, 8, 1:
        write(box, number, age=0)
        assert hand.ids(source=1) == [number]
    batches = box.lead_batches(eligible=[OWN, ColumnIs("cluster_id", 2)])[0]
    pending = batches.batch(source=1)
    assert pending[1] == [1, 7, 8, 9]
    write(box, 3, age=0)
    assert batches.ids(pending=[pending[0]], source=1) == [3]


@pytest.mark.usefixtures("eager")
def test_selections_of_several_sources_leave_each_others_batches_alone(box: Outbox) -> None:
    box.fill(20)
    for number in range(101, 121):
        write(box, number, age=90)
    lane = box.lead_batches(eligible=[OWN, OTHERS])[0]
    taken: list[list[int]] = []
    pending: list[Batch] = []
    for source in 0, 1, 0, 1:
        batch, ids = lane.batch(5, pending=pending, source=source)
        pending.append(batch)
        taken.append(ids)
    assert taken == [[*range(n, n + 5)] for n in (1, 101, 6, 106)]
    first, *rest = pending
    assert lane.ids(5, finished=[first], pending=rest, source=1) == [*range(111, 116)]
    assert lane.ids(5, pending=rest) == [*range(11, 16)]
    assert lane.start > FIRST, "the test did not come to what it tests"
    del rest[1]
    assert lane.ids(5, pending=rest) == [*range(6, 11)], "a batch that was abandoned comes again"
    assert lane.ids(5, pending=rest[:1], source=1) == [*range(106, 111)]


def test_only_own_rows_prove_where_marks_may_start(box: Outbox, make_outbox: MakeOutbox) -> None:
    def starts(eligible: list[ColumnIs], of: Outbox = box) -> bool:
        return of.connect(eligible=eligible)._starts.settled is not None

    assert starts([OWN, OTHERS])
    assert not starts([OTHERS, OWN])
    assert not starts([ColumnIs("cluster_id", 2), OWN])
    assert not starts([ColumnIs("cluster_id", 1, 5.0)])
    assert not starts([OWN, OTHERS], make_outbox())
    assert not starts([OWN, OTHERS], make_outbox(origin=ORIGIN, skip_settled=False))


def test_an_age_counts_from_the_writing_where_there_is_no_time_of_arrival(box: Outbox) -> None:
    box.admin.execute("ALTER TABLE outbox ADD COLUMN arrived timestamptz")
    for number, age in enumerate((90, 90, 1), 1):
        write(box, number, age=age)
    box.admin.execute("UPDATE outbox SET arrived = now() - interval '90 seconds' WHERE id = 2")
    hand = box.lead(0, 1, [OWN, ColumnIs("cluster_id", 2, 60.0, "arrived")])
    assert hand.ids(source=1) == [1, 2]
