"""Rows with the ids of deleted ones, which the newest time of a batch tells from its own."""

from __future__ import annotations

import pytest

from .outbox_hands import BatchHand, MakeOutbox, Outbox, ask

TIMES = [
    "infinity",
    "-infinity",
    "0044-03-15 12:00:00 BC",
    "0099-12-31 23:59:59",
    "1900-01-01 00:00:00",
    "2026-11-22 14:00:00.000001",
    "2026-11-22 14:00:00.000002",
    # Of a night in which clocks are put forward in Berlin.
    "2026-03-29 02:59:59.999999",
    "2026-03-29 03:00:00",
    # Of a night in which they are put back.
    "2026-10-25 02:30:00",
    "2026-10-25 03:00:00",
    "294276-12-31 12:00:00",
    None,
]
SETTINGS = [
    ("Europe/Berlin", "'SQL, DMY'"),
    ("America/St_Johns", "'German'"),
    ("UTC", "'Postgres, MDY'"),
    ("Asia/Kathmandu", "'ISO, YMD'"),
]


@pytest.fixture(params=["timestamptz", "timestamp", "timestamptz(3)"])
def timed(request: pytest.FixtureRequest, outbox: Outbox) -> Outbox:
    """An outbox with rows of all times in columns of some type."""
    outbox.admin.execute(
        f"ALTER TABLE outbox ALTER create_time DROP NOT NULL, ALTER create_time TYPE {request.param}"
    )
    outbox.admin.execute("SET timezone = 'UTC'")
    for time in TIMES:
        statement = "INSERT INTO outbox (create_time, kafka_topic, kafka_key) VALUES (%s, 'orders', 'k')"
        outbox.admin.execute(statement, (time,))
    return outbox


def lanes(outbox: Outbox, make_outbox: MakeOutbox) -> list[BatchHand]:
    """Hands of one lane whose sessions began with different settings."""
    found = []
    fence = outbox.lead_batches()[0].fence
    for zone, style in SETTINGS:
        outbox.set_default("timezone", f"'{zone}'")
        outbox.set_default("datestyle", style)
        found.append(BatchHand(make_outbox().connect(), fence))
    return found


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_the_rows_of_a_batch_are_deleted_whatever_their_times_and_the_sessions(
    timed: Outbox, make_outbox: MakeOutbox, limit: int
) -> None:
    hands = lanes(timed, make_outbox)
    count = len(TIMES)
    while count:
        hand, other = hands[count % len(hands)], hands[(count // 4 + 1) % len(hands)]
        batch, ids = hand.batch(limit)
        assert other.delete(batch) == len(ids)
        count -= len(ids)
    assert timed.ids() == []


def test_times_without_zone_are_compared_as_they_are_written(outbox: Outbox, make_outbox: MakeOutbox) -> None:
    outbox.admin.execute("ALTER TABLE outbox ALTER create_time TYPE timestamp")
    outbox.set_default("timezone", "'Europe/Berlin'")
    (lane,) = make_outbox().lead_batches()
    # Clocks are put forward from two to three: as a time in Berlin, the first is half an hour later.
    for time in "2026-03-29 02:30:00", "2026-03-29 03:00:00":
        statement = "INSERT INTO outbox (create_time, kafka_topic, kafka_key) VALUES (%s, 'orders', 'k')"
        outbox.admin.execute(statement, (time,))
    batch, _ = lane.batch()
    assert lane.delete(batch) == 2


@pytest.mark.parametrize(("by", "left"), [(1, [1]), (0, []), (-1, [])])
def test_a_row_that_is_younger_than_the_batch_is_another(
    outbox: Outbox, make_outbox: MakeOutbox, by: int, left: list[int]
) -> None:
    one, other = lanes(outbox, make_outbox)[:2]
    outbox.fill(1)
    batch, _ = one.batch()
    outbox.admin.execute("UPDATE outbox SET create_time = create_time + %s * interval '1 microsecond'", (by,))
    assert other.delete(batch) == 1 - len(left)
    assert outbox.ids() == left
    assert other.ids() == left


@pytest.mark.parametrize("limit", [0, 10])
def test_rows_after_a_truncation_that_restarts_ids_are_not_deleted_with_those_before(
    outbox: Outbox, make_outbox: MakeOutbox, limit: int
) -> None:
    # Without this option rows with old ids are found at the next look at the head.
    (lane,) = make_outbox(skip_settled=False).lead_batches()
    outbox.fill(8)
    first, _ = lane.batch(4)
    second, _ = lane.batch(4, pending=[first])
    outbox.admin.execute("TRUNCATE outbox RESTART IDENTITY")
    outbox.fill(6)
    assert lane.ids(limit, finished=[first], pending=[second]) == [], "the ids are those of the batches"
    assert lane.ids(limit, finished=[second]) == [1, 2, 3, 4][:limit]
    assert outbox.ids() == [1, 2, 3, 4, 5, 6]
    third, ids = lane.batch()
    assert ids == [1, 2, 3, 4, 5, 6]
    assert lane.delete(third) == 6


def test_a_batch_without_a_newest_time_is_deleted_by_its_ids_alone(outbox: Outbox, lane: BatchHand) -> None:
    outbox.fill(3)
    batch, _ = lane.batch(2)
    assert lane.delete(batch._replace(newest="")) == 2


def test_ids_of_four_bytes(outbox: Outbox) -> None:
    outbox.admin.execute("ALTER TABLE outbox ALTER id TYPE integer")
    (lane,) = outbox.lead_batches()
    outbox.fill(9)
    first, _ = lane.batch(3)
    second, ids = lane.batch(3, pending=[first])
    assert ids == [4, 5, 6]
    assert lane.ids(finished=[first], pending=[second]) == [7, 8, 9]
    assert lane.delete(second) == 3
    assert ask(outbox.admin, "SELECT count(*) FROM outbox") == 3
