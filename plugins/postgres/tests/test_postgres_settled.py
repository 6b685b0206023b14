"""Where marks may start: the bookkeeping alone, and against writers that do everything they may."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, sleep
from uuid import uuid4

import pytest
from outbox_api import Batch, ColumnIs
from outbox_postgres import settled
from outbox_postgres.settled import FIRST, HEAD_INTERVAL, LAST, LISTING_INTERVAL, LISTING_RECORDS, Settled
from outbox_servers.services import PostgresServer

from .outbox_hands import MakeOutbox, Outbox, ask


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def marks(clock: Clock) -> Settled:
    return Settled(clock)


def test_starts_at_the_head_until_something_is_proven(marks: Settled) -> None:
    assert marks.begin("me") == FIRST
    marks.marked(5, (1, 5))
    assert marks.begin("me") == FIRST


def test_starts_behind_what_it_marked_below_the_horizon(marks: Settled) -> None:
    marks.listed(100, [], prepared=False)
    assert marks.begin("me") == FIRST
    marks.marked(5, (1, 5))
    assert marks.begin("me") == 6
    marks.marked(5, (6, 10))
    assert marks.begin("me") == 11
    marks.marked(0, None)
    assert marks.begin("me") == 101


def test_never_starts_behind_the_horizon(marks: Settled) -> None:
    marks.listed(100, [], prepared=False)
    marks.begin("me")
    marks.marked(200, (1, 250))
    assert marks.begin("me") == 101


def test_the_horizon_waits_for_every_transaction_that_may_still_bring_a_lower_id(marks: Settled) -> None:
    marks.listed(100, ["a", "b"], prepared=False)
    marks.begin("me")
    marks.marked(0, None)
    assert marks.begin("me") == FIRST
    marks.listed(200, ["b", "c"], prepared=False)
    marks.begin("me")
    marks.marked(0, None)
    assert marks.begin("me") == FIRST
    marks.listed(300, ["c"], prepared=False)
    marks.begin("me")
    marks.marked(0, None)
    assert marks.begin("me") == 101
    marks.listed(None, [], prepared=False)
    marks.begin("me")
    marks.marked(0, None)
    assert marks.begin("me") == 301


def test_the_horizon_waits_for_prepared_transactions_whose_names_change(marks: Settled) -> None:
    marks.listed(100, ["a"], prepared=False)
    marks.listed(100, ["-1/7"], prepared=True)
    marks.begin("me")
    marks.marked(0, None)
    assert marks.begin("me") == FIRST


def test_a_mark_whose_rows_all_vanished_proves_nothing(marks: Settled) -> None:
    marks.listed(100, [], prepared=False)
    marks.begin("me")
    marks.marked(5, None)
    assert marks.begin("me") == FIRST


def test_looks_at_the_head_again_for_another_leader_id_and_after_a_reset(marks: Settled) -> None:
    marks.listed(100, [], prepared=False)
    marks.begin("me")
    marks.marked(0, None)
    assert marks.begin("another") == FIRST
    marks.marked(3, (10, 20))
    assert marks.begin("another") == 21
    marks.released()
    assert marks.begin("another") == FIRST


def test_looks_at_the_head_now_and_then_and_less_often_where_that_is_dear(
    marks: Settled, clock: Clock
) -> None:
    marks.listed(100, [], prepared=False)
    marks.begin("me")
    marks.marked(0, None)
    clock.now += HEAD_INTERVAL
    assert marks.begin("me") == FIRST
    clock.now += 1.0
    marks.marked(0, None)
    clock.now += 49.0
    assert marks.begin("me") == 101
    clock.now += 1.0
    assert marks.begin("me") == FIRST


def test_a_row_that_should_not_be_there_ends_the_trust(marks: Settled, clock: Clock) -> None:
    marks.listed(100, [], prepared=False)
    marks.begin("me")
    marks.marked(0, None)
    clock.now += HEAD_INTERVAL
    marks.begin("me")
    marks.marked(2, (50, 60))
    assert marks.begin("me") == FIRST
    marks.marked(1, (70, 70))
    assert marks.begin("me") == FIRST


def test_a_row_that_is_found_where_marks_had_passed_is_told(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(settled, "LISTING_INTERVAL", 0.0)
    hand = outbox.lead()
    outbox.fill(20)
    outbox.admin.execute("DELETE FROM outbox WHERE id = 7")
    hand.mark(), hand.mark()
    outbox.admin.execute(f"{FIXED} VALUES (7, now(), 'orders', 'k', 'v', '{{}}', '{{}}')")
    monkeypatch.setattr(hand.table._starts.settled, "_head_due", 0.0)
    assert hand.ids() == [7]
    assert "row 7 of" in caplog.text


FIXED = (
    "INSERT INTO outbox (id, create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys,"
    " kafka_header_values)"
)


@pytest.mark.usefixtures("eager")
def test_behind_an_id_that_the_sequence_did_not_give_out_rows_are_found_at_once(outbox: Outbox) -> None:
    hand, [lane] = outbox.lead(), outbox.lead_batches()
    outbox.fill(3)
    outbox.admin.execute(f"{FIXED} VALUES ({LAST}, now(), 'orders', 'k', 'v', '{{}}', '{{}}')")
    hand.fence = lane.fence
    assert hand.ids() == [1, 2, 3, LAST]
    batches = [Batch.of(lane.ids(), lane.latest.newest)]
    assert batches[0].rows == 4
    for _ in range(3):
        assert hand.ids() == lane.ids(pending=batches) == []
        outbox.fill(3)
        ids = hand.ids()
        assert ids == outbox.ids()[-4:-1]
        assert lane.ids(pending=batches) == ids
        batches.append(Batch.of(ids, lane.latest.newest))


def test_the_greatest_id_is_no_horizon_beyond_it(marks: Settled) -> None:
    marks.listed(LAST, [], prepared=False)
    marks.begin("me")
    marks.marked(1, (LAST, LAST))
    assert marks.begin("me") == LAST


A, B, AB = frozenset("a"), frozenset("b"), frozenset("ab")


@pytest.mark.parametrize(
    ("then", "start"),
    [(A, 6), (AB, 6), (B, FIRST), (frozenset(), FIRST)],
    ids=["same", "more", "other", "none"],
)
def test_a_key_that_was_left_out_must_be_left_out_again_or_found_from_the_head(
    marks: Settled, then: frozenset[str], start: int
) -> None:
    marks.listed(100, [], prepared=False)
    marks.begin("me", keys=A)
    marks.marked(5, (1, 5))
    assert marks.begin("me", keys=then) == start


def test_keys_left_out_are_those_of_the_latest_mark_that_succeeded(marks: Settled) -> None:
    marks.listed(100, [], prepared=False)
    marks.begin("me", keys=A)
    marks.marked(5, (1, 5))
    marks.begin("me", keys=AB)
    marks.marked(5, (6, 10))
    assert marks.begin("me", keys=AB) == 11, "b is behind the start by now"
    for _ in range(2):
        assert marks.begin("me", keys=A) == FIRST, "a mark that failed has looked at nothing"
    marks.marked(2, (2, 4))
    assert marks.begin("me", keys=A) == 5
    marks.marked(0, None)
    assert marks.begin("me", keys=A) == 101
    assert marks.begin("me") == FIRST


def test_a_key_left_out_no_more_is_no_reason_for_distrust(marks: Settled) -> None:
    marks.listed(100, [], prepared=False)
    marks.begin("me", keys=A)
    marks.marked(5, (5, 10))
    marks.begin("me")
    marks.marked(5, (1, 20))
    assert marks.begin("me") == 21


def test_a_listing_is_due_after_a_time_or_after_many_records(marks: Settled, clock: Clock) -> None:
    assert marks.due()
    marks.listed(None, [], prepared=False)
    assert not marks.due()
    clock.now += LISTING_INTERVAL
    assert marks.due()
    marks.listed(None, [], prepared=False)
    marks.begin("me")
    marks.marked(LISTING_RECORDS, (1, LISTING_RECORDS))
    assert marks.due()


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("how", ["insert", "nextval first", "nextval and rolled back savepoint"])
def test_a_late_commit_is_found_at_once_whatever_took_the_id(outbox: Outbox, how: str) -> None:
    hand = outbox.lead()
    late = outbox.session()
    if how == "insert":
        outbox.write("late", connection=late)
    else:
        late.execute("SAVEPOINT s")
        late.execute("SELECT nextval('outbox_id_seq')")
        if "savepoint" in how:
            late.execute("ROLLBACK TO s")
    outbox.fill(20)
    for _ in range(3):
        hand.mark(5)
    if "nextval" in how:
        late.execute("INSERT INTO outbox (id, kafka_topic, kafka_key) VALUES (1, 'orders', 'late')")
    late.commit()
    assert [record.key for record in hand.mark(1)] == ["late"]


@pytest.mark.usefixtures("eager")
def test_a_late_commit_of_a_prepared_transaction_is_found_at_once(make_outbox: MakeOutbox) -> None:
    with PostgresServer(settings={"max_prepared_transactions": 2}) as server:
        outbox = make_outbox(server.dsn)
        outbox.dialect.create()
        hand = outbox.lead()
        late = outbox.session()
        late.tpc_begin("late")
        outbox.write("late", connection=late)
        outbox.fill(20)
        hand.mark(5)
        late.tpc_prepare()
        hand.mark(5)
        hand.mark(5)
        late.tpc_commit()
        assert [record.key for record in hand.mark(1)] == ["late"]


@pytest.mark.usefixtures("eager")
def test_marks_do_not_look_again_at_what_is_settled(outbox: Outbox) -> None:
    outbox.fill(20)
    hand = outbox.lead()
    hand.mark(1)  # the first mark reads what a listing rests on
    hand.mark(10)
    outbox.admin.execute("UPDATE outbox SET leader_id = NULL WHERE id = 5")
    assert [record.id for record in hand.mark(3)] == [12, 13, 14]


@pytest.mark.usefixtures("eager")
def test_a_reader_with_an_old_snapshot_does_not_hold_marks_back(outbox: Outbox) -> None:
    reader = outbox.session()
    reader.execute("SELECT count(*) FROM outbox")
    outbox.fill(20)
    hand = outbox.lead()
    hand.mark(1)
    hand.mark(10)
    assert hand.table._starts.settled
    assert hand.table._starts.settled._horizon == 21


def test_every_mark_looks_at_the_head_where_ids_prove_nothing(
    make_outbox: MakeOutbox, outbox: Outbox
) -> None:
    plain = make_outbox(skip_settled=False)
    assert plain.connect()._starts.settled is None
    outbox.admin.execute("ALTER TABLE outbox ADD COLUMN cluster TEXT")
    assert outbox.connect(eligible=[ColumnIs("cluster", "eu")])._starts.settled is None
    assert outbox.connect()._starts.settled is not None
    outbox.admin.execute("ALTER SEQUENCE outbox_id_seq CACHE 10")
    assert outbox.connect()._starts.settled is None
    outbox.admin.execute("ALTER SEQUENCE outbox_id_seq CACHE 1")
    outbox.admin.execute("ALTER TABLE outbox ALTER COLUMN id DROP DEFAULT")
    assert outbox.connect()._starts.settled is None
    outbox.admin.execute("DROP SEQUENCE outbox_id_seq")
    assert outbox.connect()._starts.settled is None
    outbox.admin.execute("ALTER TABLE outbox ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY")
    assert outbox.connect()._starts.settled is not None


def steps_over_a_key(outbox: Outbox) -> tuple[list[int], list[int]]:
    """Leaves a key out for some marks, and no longer; returns what is marked of it, and its rows."""
    outbox.fill(30, keys=3)
    hand = outbox.lead()
    for _ in range(2):
        assert len(hand.ids(6, excluded=["k1"])) == 6
    settled = hand.table._starts.settled
    assert settled
    assert settled._start == 19, "the test did not come to what it tests"
    found = [record.id for record in hand.mark(excluded=["k2"]) if record.key == "k1"]
    return found, [*range(1, 31, 3)]


@pytest.mark.usefixtures("eager")
def test_a_key_that_was_left_out_comes_from_its_first_row(outbox: Outbox) -> None:
    found, rows = steps_over_a_key(outbox)
    assert found == rows


@pytest.mark.usefixtures("eager")
def test_without_the_keys_behind_the_first_rows_of_a_key_are_passed_over(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = Settled.begin

    def forgetful(
        self: Settled, claimant: object, left_out: Collection[Batch] = (), keys: object = ()
    ) -> int:
        self._keys_behind = frozenset()
        return begin(self, claimant, left_out)

    monkeypatch.setattr(Settled, "begin", forgetful)
    found, rows = steps_over_a_key(outbox)
    assert found == [number for number in rows if number >= 19]


@pytest.mark.usefixtures("eager")
def test_a_mark_cut_by_bytes_is_followed_by_the_rows_it_left(outbox: Outbox) -> None:
    for number in range(12):
        outbox.write(value="x" * (90_000 if number == 5 else 10_000))
    hand = outbox.lead()
    seen: list[int] = []
    for expected in (3, 4, 3, 2):
        marked = hand.mark(max_bytes=35_000)
        assert len(marked) == expected
        seen += [record.id for record in marked]
        hand.purge(*(record.id for record in marked if not record.fault))
    assert seen == [*range(1, 13)]
    assert hand.table._starts.settled
    assert hand.table._starts.settled._start == 13


class Writers:
    """Writes rows in every way that is allowed, and notes when each transaction began and ended."""

    def __init__(self, outbox: Outbox, threads: int) -> None:
        self.log: dict[int, tuple[str, int, int]] = {}
        """Id → key, began, ended; for what was committed."""
        self._outbox = outbox
        self._tick = itertools.count()
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(threads)
        self._running = [self._pool.submit(self._run, seed) for seed in range(threads)]

    def stop(self) -> None:
        self._stop.set()
        for writer in self._running:
            writer.result(60)
        self._pool.shutdown()

    def _run(self, seed: int) -> None:
        dice = random.Random(seed)
        connection = self._outbox.session()
        while not self._stop.is_set():
            began, key = next(self._tick), f"k{dice.randrange(4)}"
            early = dice.random() < 0.3
            number = ask(connection, "SELECT nextval('outbox_id_seq')") if early else None
            sleep(dice.choice([0, 0, 0.001, 0.02]))
            columns, values = ("id, ", (number,)) if number else ("", ())
            statement = (
                f"INSERT INTO outbox ({columns}kafka_key, kafka_topic) VALUES ({'%s, ' * len(values)}%s, 't')"
            )
            number = ask(connection, f"{statement} RETURNING id", *values, key)
            sleep(dice.choice([0, 0, 0.001, 0.02]))
            if dice.random() < 0.1:
                connection.rollback()
            else:
                connection.commit()
                self.log[number] = (key, began, next(self._tick))


def assert_causes_come_first(log: dict[int, tuple[str, int, int]], seen: list[int]) -> None:
    """Row a causes row b of the same key when a's transaction had ended before b's began."""
    place = {number: index for index, number in enumerate(seen)}
    for key in {key for key, _, _ in log.values()}:
        rows = [(began, ended, place[number]) for number, (k, began, ended) in log.items() if k == key]
        causes = sorted((ended, index) for _, ended, index in rows)
        latest = -1
        for began, _, effect in sorted(rows):
            while causes and causes[0][0] < began:
                latest = max(latest, causes.pop(0)[1])
            assert effect > latest


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("lanes", [1, 3])
def test_under_busy_writers_no_row_is_missed_and_causes_come_before_effects(
    outbox: Outbox, lanes: int
) -> None:
    table = outbox.connect()
    token = table.bump(lanes, "test")
    hands = [(outbox.connect(), table.enter(lane, lanes, token), uuid4()) for lane in range(lanes)]
    writers = Writers(outbox, 6)
    seen: list[int] = []
    dice = random.Random(0)
    deadline = monotonic() + 3
    while monotonic() < deadline:
        # A key that is left out for a while comes back in order, and bytes cut a mark anywhere.
        excluded = dice.choice([(), (), ("k1",), ("k1", "k2")])
        for hand, fence, leader in hands:
            marked = [record.id for record in hand.mark(fence, leader, 7, dice.choice([60, 10**6]), excluded)]
            seen += marked
            hand.purge(fence, leader, marked)
    writers.stop()
    for hand, fence, leader in hands:
        while marked := [record.id for record in hand.mark(fence, leader, 100)]:
            seen += marked
    assert len(seen) == len(set(seen))
    assert set(seen) == set(writers.log)
    assert len(seen) > 200
    started = [hand._starts.settled._start for hand, _, _ in hands if hand._starts.settled]
    assert all(start > FIRST for start in started), "the test did not come to what it tests"
    assert_causes_come_first(writers.log, seen)
