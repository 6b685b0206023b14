"""Claim and parts under Spark's protocol, without Spark: crashes at every step lose and repeat nothing."""

from __future__ import annotations

import random
import sqlite3
import sys
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from time import sleep, time
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from outbox_api import (
    Advanced,
    Dialect,
    DriverError,
    LeadershipLost,
    MarkedRecord,
    OutboxError,
    OutboxTable,
    Record,
    Seam,
    Stasher,
    TransactionalLane,
    find,
)
from outbox_api.portable.keeping import Keep
from outbox_core.delivery.recovery import Recovery
from outbox_core.lanes import housekeeping
from outbox_core.monitoring import names
from outbox_core.settings import Delivery
from pyspark.sql.streaming.listener import SourceProgress
from pyspark_outbox.claim import Claim
from pyspark_outbox.connection import Connection
from pyspark_outbox.metrics import QueryFigures
from pyspark_outbox.offsets import Offset
from pyspark_outbox.options import read_options

from .source_driver import STEPS, CrashError, Driver, claim_of, delivered


@pytest.fixture
def data_source(tmp_path: Path) -> str:
    return str(tmp_path / "shop.db")


@pytest.fixture
def dialect(data_source: str) -> Dialect:
    driver = find(Seam.DIALECT, "sqlite")
    made: Dialect = driver.create(driver.options(data_source=data_source))
    made.create()
    return made


def stash(dialect: Dialect, numbers: Sequence[int], keys: int = 5) -> None:
    with closing(dialect.stash_connection()) as connection:
        records = [Record("orders", f"k{number % keys}", str(number)) for number in numbers]
        Stasher(dialect="sqlite").stash_many(connection, records)
        connection.commit()


def waiting(dialect: Dialect) -> int:
    with closing(dialect.watch()) as view:
        return view.backlog().records


def noted(dialect: Dialect) -> bool:
    with closing(dialect.watch()) as view:
        return bool(view.transactional_lanes())


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("batch", [1, 2, 3])
def test_a_crash_after_any_step_loses_and_repeats_nothing(dialect: Dialect, step: str, batch: int) -> None:
    stash(dialect, range(30))
    driver = Driver(dialect)
    with pytest.raises(CrashError):
        driver.run(10, (batch, step))
    stash(dialect, range(30, 40))
    driver.run(10)
    driver.assert_once_in_order(range(40))
    assert waiting(dialect) == 0


@pytest.mark.parametrize("seed", range(10))
def test_many_crashes_lose_and_repeat_nothing(dialect: Dialect, seed: int) -> None:
    chance = random.Random(seed)
    driver, written = Driver(dialect), 0
    for _ in range(12):
        number = chance.randrange(20)
        stash(dialect, range(written, written + number))
        written += number
        with suppress(CrashError):
            driver.run(
                chance.randrange(1, 12), (driver.commits + chance.randrange(1, 4), chance.choice(STEPS))
            )
    driver.run(10)
    driver.assert_once_in_order(range(written))
    assert waiting(dialect) == 0


def test_rows_are_deleted_once_spark_has_committed_them(dialect: Dialect) -> None:
    stash(dialect, range(10))
    with closing(claim_of(dialect)) as claim:
        first = claim.next(Offset(), 4)
        assert len(delivered(claim, Offset(), first)) == 4
        assert waiting(dialect) == 10
        second = claim.next(first, 100)
        assert waiting(dialect) == 6
        assert len(delivered(claim, first, second)) == 6
        assert claim.next(second, 100) == second
        assert waiting(dialect) == 0


def test_what_was_kept_for_long_enough_is_removed(
    data_source: str, dialect: Dialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = find(Seam.DIALECT, "sqlite")
    keeping: Dialect = driver.create(driver.options(data_source=data_source, keep=Keep(for_=3600)))
    keeping.create()
    stash(dialect, range(10))
    monkeypatch.setattr(housekeeping, "FIRST_SECONDS", 0)
    with closing(claim_of(keeping)) as claim:
        end = claim.next(claim.next(Offset(), 10), 10)
    with closing(sqlite3.connect(data_source)) as connection, connection:
        change = "UPDATE outbox_kept SET delivered_at = '2020-01-01 00:00:00' WHERE position <= 6"
        assert connection.execute(change).rowcount == 6
    with closing(claim_of(keeping)) as claim:
        claim.next(end, 10)
    with closing(sqlite3.connect(data_source)) as connection:
        assert connection.execute("SELECT count(*) FROM outbox_kept").fetchone() == (4,)


def test_positions_rise_where_ids_do_not(dialect: Dialect, data_source: str) -> None:
    stash(dialect, range(10), keys=1)
    with closing(sqlite3.connect(data_source)) as connection, connection:
        connection.execute("UPDATE outbox SET id = id + 100")
    driver = Driver(dialect)
    driver.run(10)
    with closing(sqlite3.connect(data_source)) as connection:
        connection.execute("DELETE FROM sqlite_sequence")
        connection.commit()
    stash(dialect, range(10, 20), keys=1)  # as of a transaction that took its ids early, and ended late
    driver.run(4)
    driver.assert_once_in_order(range(20), keys=1)
    assert [row.record.id for row in driver.rows()] == [*range(101, 111), *range(1, 11)]


def test_a_replay_fences_others_too(dialect: Dialect) -> None:
    stash(dialect, range(10))
    driver = Driver(dialect)
    with pytest.raises(CrashError):
        driver.run(10, (1, "logged"))
    with closing(dialect.connect()) as table, closing(claim_of(dialect)) as claim:
        other = table.enter(0, 1, table.bump(1, "harvester"))
        assert len(delivered(claim, Offset(), driver.offsets[0])) == 10
        with pytest.raises(LeadershipLost):
            table.advance(other, [], [], 10)


def test_the_outbox_stays_the_query_s(dialect: Dialect) -> None:
    stash(dialect, range(10))
    with closing(claim_of(dialect)) as claim:
        end = claim.next(Offset(), 10)
        assert not noted(dialect)
        claim.parts(Offset(), end)
        assert claim.next(end, 10) == end
    assert (waiting(dialect), noted(dialect)) == (0, True)


def test_a_checkpoint_of_another_outbox_is_refused(dialect: Dialect) -> None:
    with closing(claim_of(dialect)) as claim:
        assert claim.next(Offset(), 10) == Offset()
        with closing(claim_of(dialect)) as other, pytest.raises(OutboxError, match="is of another outbox"):
            other.next(Offset("somebody's", "query", 1, ""), 10)


def test_rows_of_one_key_are_in_one_part(dialect: Dialect) -> None:
    stash(dialect, range(100), keys=7)
    with closing(Claim(Connection(dialect.connect, 0.0), "outbox", "query", 1 << 20, parts=3)) as claim:
        parts = claim.parts(Offset(), claim.next(Offset(), 100))
    keys = [{row.record.key for row in part} for part in parts]
    assert len(parts) == 3
    assert sum(map(len, keys)) == len(set().union(*keys)) == 7


def test_a_batch_is_bounded_by_bytes(dialect: Dialect) -> None:
    stash(dialect, range(1000))
    with closing(claim_of(dialect, max_bytes=1000)) as claim:
        assert 1 < len(delivered(claim, Offset(), claim.next(Offset(), 1000))) < 200
        bounded = claim.next(Offset(), 1000, max_bytes=100)
        assert bounded.checkpoint.attempted is not None
        assert bounded.checkpoint.attempted.rows < 20


def test_another_query_fences_this_one(dialect: Dialect) -> None:
    stash(dialect, range(10))
    with closing(claim_of(dialect, "one")) as one, closing(claim_of(dialect, "two")) as two:
        start = one.next(Offset(), 5)
        end = two.next(Offset(), 5)
        with pytest.raises(LeadershipLost, match="'one' reads the outbox outbox no longer: 'two' has raised"):
            one.parts(Offset(), start)
        with pytest.raises(LeadershipLost, match="'two' has raised"):
            one.next(start, 5)
        assert waiting(dialect) == 10
        assert len(delivered(two, Offset(), end)) == 5


def test_another_checkpoint_is_refused_before_anybody_is_fenced(dialect: Dialect) -> None:
    stash(dialect, range(10))
    with closing(claim_of(dialect, "one")) as one, closing(claim_of(dialect, "two")) as two:
        end = one.next(Offset(), 5)
        one.parts(Offset(), end)
        with pytest.raises(OutboxError, match="was read by another query"):
            two.next(Offset(), 5)
        assert one.next(end, 5).batch == 2


def test_an_older_copy_of_the_checkpoint_is_refused(dialect: Dialect) -> None:
    stash(dialect, range(30))
    driver = Driver(dialect)
    with pytest.raises(CrashError):
        driver.run(10, (3, "planned"))
    older = Driver(dialect, driver.offsets[:1], 1)
    with pytest.raises(OutboxError, match="ends with batch 1, and the query has read batch 3"):
        older.run(10)


def test_an_older_copy_gives_out_no_number_again(dialect: Dialect) -> None:
    stash(dialect, range(30))
    driver = Driver(dialect)
    driver.run(10)
    stash(dialect, range(30, 40))
    with pytest.raises(OutboxError, match="ends with batch 1, and the query has read batch 3"):
        Driver(dialect, driver.offsets[:1], 1).run(10)  # a sink that has batch 2 would leave these rows out
    assert waiting(dialect) == 10


def test_an_older_copy_does_not_skip_deleted_rows(dialect: Dialect) -> None:
    stash(dialect, range(30))
    driver = Driver(dialect)
    driver.run(10)
    forget(dialect)
    with pytest.raises(OutboxError, match="10 of 10 rows of batch 2 are not in the outbox any more"):
        Driver(dialect, driver.offsets[:2], 1).run(10)
    assert not noted(dialect)  # so that a new checkpoint can begin, as the error says


def forget(dialect: Dialect) -> None:
    with closing(dialect.connect()) as table:
        table.set_transactional(table.enter(0, 1, table.bump(1, "an operator")), None)


def test_a_lane_with_kafka_transactions_is_settled_first(dialect: Dialect) -> None:
    stash(dialect, range(10))
    with closing(dialect.connect()) as table:
        lane = table.enter(0, 1, table.bump(1, "harvester"))
        table.set_transactional(lane, TransactionalLane(1, "outbox.0.abc", "here"))
    with (
        closing(claim_of(dialect)) as claim,
        pytest.raises(OutboxError, match="start its harvester and stop it in order"),
    ):
        claim.next(Offset(), 10)
    with closing(dialect.connect()) as table:
        assert table.lane_statuses()[0].holder == "harvester"


class Harvester:
    """Database and broker of a harvester; the broker knows nothing of a query."""

    def __init__(self, table: OutboxTable) -> None:
        self.table = table

    def open_sender(self, name: str) -> object:
        return SimpleNamespace(attempt=lambda _location: None, location="here")

    def close_sender(self, name: str) -> None:
        pass

    def for_each(self, lanes: Sequence[int], act: Callable[[Any, int], object]) -> list[object]:
        return [act(self, lane) for lane in lanes]


@pytest.mark.parametrize("delivery", Delivery)
def test_a_harvester_refuses_what_a_query_may_have_delivered(dialect: Dialect, delivery: Delivery) -> None:
    stash(dialect, range(10))
    with closing(claim_of(dialect)) as claim:
        claim.parts(Offset(), claim.next(Offset(), 10))
    with closing(dialect.connect()) as table:
        notes, token = table.transactional_lanes(), table.bump(1, "harvester")
        servers: Any = Harvester(table)
        recovery = Recovery(1, token, delivery)
        exactly = delivery is Delivery.EXACTLY_ONCE
        begin = partial(recovery.open, servers, 0) if exactly else partial(recovery.recover, servers, notes)
        with pytest.raises(DriverError, match=r"a query of Spark \(spark-query\..*'outbox fence forget'"):
            begin()
    assert waiting(dialect) == 10


def test_a_parked_key_stays_parked(dialect: Dialect, data_source: str) -> None:
    stash(dialect, range(10))
    with closing(sqlite3.connect(data_source)) as connection, connection:
        connection.execute("UPDATE outbox SET kafka_header_keys = '[\"name\"]' WHERE id IN (1, 2, 7)")
    driver = Driver(dialect)
    driver.run(100)
    # k0 has 1 and 6, k1 has 2 and 7.
    assert [row.record.id for row in driver.rows()] == [3, 4, 5, 8, 9, 10]
    with closing(dialect.dead_letters()) as letters:
        assert {letter.record.id for letter in letters.find()} == {1, 2}
    assert waiting(dialect) == 4


def test_what_is_changed_after_its_selection_ends_the_query(dialect: Dialect, data_source: str) -> None:
    stash(dialect, range(10))
    with closing(claim_of(dialect)) as claim:
        end = claim.next(Offset(), 10)
    with closing(sqlite3.connect(data_source)) as connection, connection:
        connection.execute("UPDATE outbox SET kafka_header_keys = '[\"name\"]' WHERE id = 3")
    with (
        closing(claim_of(dialect)) as claim,
        pytest.raises(OutboxError, match="row 3 of batch 1 was changed"),
    ):
        delivered(claim, Offset(), end)


class Trembling:
    """A database that answers every second question only, after it has done what it was asked."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.asked = 0

    def connect(self) -> OutboxTable:
        table = self._dialect.connect()
        for name in "advance", "bump", "enter", "set_transactional", "rows":
            setattr(table, name, self._lossy(getattr(table, name)))
        return table

    def _lossy(self, method: object) -> object:
        def lossy(*arguments: object, **named: object) -> object:
            answer = method(*arguments, **named)  # type: ignore[operator]
            self.asked += 1
            if self.asked % 3 == 0:
                raise DriverError("the connection is lost", retryable=True)
            return answer

        return lossy


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_outbox.connection.RETRY_SECONDS", 0.0)


@pytest.mark.usefixtures("patient")
def test_lost_answers_lose_and_repeat_nothing(dialect: Dialect) -> None:
    stash(dialect, range(50))
    trembling, found, start = Trembling(dialect), list[int](), Offset()
    with closing(Claim(Connection(trembling.connect, 60.0), "outbox", "query", 1 << 20)) as claim:
        while (end := claim.next(start, 7)) != start:
            found += [row.record.id for row in delivered(claim, start, end)]
            start = end
    assert sorted(found) == list(range(1, 51))
    assert trembling.asked > 20
    assert waiting(dialect) == 0


class Delayed:
    """A database whose first note arrives when it is told so, after its client has given it up."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.arrive: Callable[[], None] | None = None

    def connect(self) -> OutboxTable:
        table = self._dialect.connect()
        if self.arrive is None:
            late = table.set_transactional

            def delayed(*arguments: Any) -> None:
                self.arrive = partial(late, *arguments)
                table.close = lambda: None  # type: ignore[method-assign]  # the network has the request
                raise DriverError("the connection is lost", retryable=True)

            table.set_transactional = delayed  # type: ignore[assignment]
        return table


@pytest.mark.usefixtures("patient")
def test_a_note_that_arrives_late_hides_no_batch(dialect: Dialect) -> None:
    stash(dialect, range(20))
    delayed = Delayed(dialect)
    with closing(Claim(Connection(delayed.connect, 60.0), "outbox", "query", 1 << 20)) as claim:
        first = claim.next(Offset(), 10)
        delivered(claim, Offset(), first)
        second = claim.next(first, 10)
        delivered(claim, first, second)
        assert delayed.arrive is not None
        with suppress(LeadershipLost):
            delayed.arrive()
        assert claim.next(second, 10) == second, "the query goes on"
    older = Driver(dialect, [first], 1)
    with pytest.raises(OutboxError, match="ends with batch 1, and the query has read batch 2"):
        older.run(10)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"outboxtabel": "x"}, "has no option 'outboxtabel'; did you mean 'outboxTable'"),
        ({"dialect": "postgress"}, "postgress"),
        ({"dialect": "sqlite", "dialect.valuetyp": "bytes"}, "did you mean 'valueType'"),
        ({"maxrecordspertrigger": "many"}, "'maxRecordsPerTrigger' is 'many'"),
        ({"values": "perhaps"}, "'values' is 'perhaps'"),
        ({"of": "letters"}, "'of' is 'letters'; it is waiting or dead-letters or kept"),
        ({"outbox": "one"}, "name that as 'config'"),
        ({"config": "outbox.yaml", "dialect": "sqlite"}, "'dialect' is one of its settings"),
        ({"config": "/nowhere/outbox.yaml"}, "there is no such file"),
        ({"password": "${NOWHERE}"}, "NOWHERE"),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(options: dict[str, str], says: str) -> None:
    with pytest.raises(OutboxError, match=says) as refused:
        read_options(options)
    assert "\n" not in str(refused.value)


def test_a_file_names_the_outbox(tmp_path: Path) -> None:
    file = tmp_path / "outbox.yaml"
    file.write_text(
        "harvest: {dialect: sqlite, elector: static, engine: inline}\n"
        "outboxes: {one: {outboxTable: first}, two: {outboxTable: second}}\n"
    )
    read_ = read_options({"config": str(file), "outbox": "two", "maxrecordspertrigger": "5"})
    assert (read_.settings.outbox, read_.max_rows) == ("second", 5)
    with pytest.raises(
        OutboxError, match=r"several outboxes \(one, two\); choose one by the option 'outbox'"
    ):
        read_options({"config": str(file)})
    with pytest.raises(OutboxError, match="has no outbox 'three'; there are one, two"):
        read_options({"config": str(file), "outbox": "three"})


def test_a_name_beside_a_file_names_the_query(tmp_path: Path) -> None:
    file = tmp_path / "outbox.yaml"
    file.write_text("harvest: {name: harvester, dialect: sqlite, elector: static, engine: inline}\n")
    assert read_options({"config": str(file)}).settings.name == "harvester"
    assert read_options({"config": str(file), "name": "lakehouse"}).settings.name == "lakehouse"


def test_a_file_with_transforms_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "outbox.yaml"
    file.write_text("harvest: {dialect: sqlite, elector: static, engine: inline, transform: [identity]}\n")
    with pytest.raises(OutboxError, match=r"applies no transforms, and .*outbox\.yaml has 'transform:'"):
        read_options({"config": str(file)})


def test_what_waited_is_delivered_whatever_was_written_since(dialect: Dialect) -> None:
    stash(dialect, range(200))
    with closing(claim_of(dialect)) as claim:
        first = claim.next(Offset(), 1000)
        stash(dialect, range(200, 205))
        sleep(0.05)
        claim.prepare_available_now()
        sleep(0.05)
        stash(dialect, range(205, 600))  # of so many rows, few tell when they were created
        second = claim.next(first, 1000)
        assert second.checkpoint.attempted is not None
        assert second.checkpoint.attempted.rows == 400
        stash(dialect, range(600, 1000))
        assert claim.next(second, 1000) == second


def test_a_batch_that_an_application_has_deleted_ends_no_query(
    dialect: Dialect, data_source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stash(dialect, range(6))

    def deleted_first(table: OutboxTable, after: int) -> list[MarkedRecord]:
        with closing(sqlite3.connect(data_source)) as connection, connection:
            connection.execute("DELETE FROM outbox WHERE id <= 2")
        return table.peek(after, 10)

    monkeypatch.setattr("pyspark_outbox.claim._peek", deleted_first)
    with closing(claim_of(dialect)) as claim:
        advance = claim._advance  # of many rows, few tell when they were created

        def dateless_advance(*arguments: Any) -> Advanced:
            advanced = advance(*arguments)
            return advanced._replace(records=[row._replace(created=None) for row in advanced.records])

        monkeypatch.setattr(claim, "_advance", dateless_advance)
        sleep(0.05)
        claim.prepare_available_now()
        first = claim.next(Offset(), 2)
        assert len(delivered(claim, Offset(), first)) == 2
        second = claim.next(first, 10)
        assert len(delivered(claim, first, second)) == 2
        assert claim.next(second, 10) == second


def test_batches_may_be_deleted_any_number_of_times(
    dialect: Dialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    stash(dialect, range(2))
    answers: list[bool | None] = [None] * sys.getrecursionlimit()
    with closing(claim_of(dialect)) as claim:
        monkeypatch.setattr(claim, "_is_later", lambda *_: answers.pop() if answers else False)
        assert len(delivered(claim, Offset(), claim.next(Offset(), 10))) == 2


def test_a_drivers_wrong_clock_ends_nothing_early_and_dates_no_snapshot(
    dialect: Dialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = time()
    stash(dialect, range(5))
    for module in ("batches", "choosing", "view"):
        monkeypatch.setattr(f"outbox_api.portable.{module}.time", lambda: time() + 3600, raising=False)
    with closing(claim_of(dialect)) as claim:
        sleep(0.05)
        claim.prepare_available_now()
        assert len(delivered(claim, Offset(), claim.next(Offset(), 10))) == 5
    with closing(dialect.watch()) as view:
        found = [row.created or 0.0 for row in view.peek(0, 10)]
    assert len(found) == 5
    assert all(before - 1 < each < time() + 1 for each in found)


def told(start: object, end: object, report: object = None) -> SourceProgress:
    """Returns what a query's progress says of a source."""
    rates = dict.fromkeys(("numInputRows", "inputRowsPerSecond", "processedRowsPerSecond"), 0)
    offsets = {"startOffset": start, "endOffset": end, "latestOffset": report}
    return SourceProgress.fromJson({"description": "", **offsets, **rates})


def test_figures_count_a_batch_of_an_outbox_once(dialect: Dialect) -> None:
    stash(dialect, range(10))
    with closing(claim_of(dialect)) as claim:
        end = claim.next(Offset(), 7).written()
    figures, run = QueryFigures(), uuid4()
    figures.delivered({"addBatch": 2.5}, told(None, end))  # of a replay Spark says nothing of what waits
    assert figures.read() == []
    figures.reported(run, told(end, end, {"outbox": "orders", "waiting": 3, "oldestSeconds": 1.5}))
    for other in ({"topic": {"0": 5}}, None, 7, "text"):
        figures.reported(run, told(None, other, {"topic": {"0": 9}}))
        figures.delivered({"addBatch": 2.5}, told(None, other))
    figures.delivered({"addBatch": 2.5}, told(end, end))
    found = {each.metric: each.value for each in figures.read() if isinstance(each.value, int | float)}
    assert found == {names.LEADER: 1, names.PURGED: 7, names.BACKLOG: 3, names.BACKLOG_AGE: 1.5}
    figures.ended(run)
    found = {each.metric: each.value for each in figures.read() if isinstance(each.value, int | float)}
    assert found == {names.LEADER: 0, names.PURGED: 7}
