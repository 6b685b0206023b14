"""Streams that begin with kept records, under Spark's protocol, without Spark: each record once, in order."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from outbox_api import Batch, OutboxError
from outbox_api.portable.erasing import PortableErasing
from psycopg.conninfo import make_conninfo
from pyspark_outbox.beginning import Beginning
from pyspark_outbox.claim import Claim
from pyspark_outbox.connection import Connection
from pyspark_outbox.offsets import Offset
from pyspark_outbox.options import Of, SourceOptions, read_options

from .kept_trial import Shop, shop_in
from .sink_trial import KEYS
from .source_driver import STEPS, CrashError, Driver, delivered

DATABASES = ["sqlite", "postgres", "mariadb"]


@pytest.fixture
def shop_of(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Shop]:
    return partial(shop_in, request, tmp_path)


@pytest.fixture(params=DATABASES)
def shop(request: pytest.FixtureRequest, shop_of: Callable[..., Shop]) -> Shop:
    return shop_of(request.param)


@pytest.fixture
def local(shop_of: Callable[..., Shop]) -> Shop:
    return shop_of("sqlite")


def options_of(shop: Shop, **changes: Any) -> SourceOptions:
    return replace(SourceOptions(shop.settings, starting=Of.KEPT), **changes)


def beginning(options: SourceOptions) -> Beginning:
    dialect: Any = options.settings.dialect.create()
    claim = Claim(Connection(dialect.connect, 0.0), "outbox", "query", options.max_bytes)
    return Beginning(claim, Connection(lambda: dialect.kept(read_only=True), 0.0), options)


@dataclass
class Query(Driver):
    """A query that begins with what is kept, unless its options say otherwise."""

    options: SourceOptions | None = None

    def reader(self) -> Beginning:
        assert self.options
        return beginning(self.options)

    def numbers(self) -> list[int]:
        return [int(row.record.value or "") for row in self.rows()]


def query_of(shop: Shop, **changes: Any) -> Query:
    return Query(shop.dialect, options=options_of(shop, **changes))


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    ("database", "batch"), [("sqlite", 1), ("sqlite", 2), ("sqlite", 3), ("postgres", 2), ("mariadb", 2)]
)
def test_a_crash_after_any_step_loses_and_repeats_nothing(
    shop_of: Callable[..., Shop], database: str, step: str, batch: int
) -> None:
    shop = shop_of(database)
    shop.keep(range(150))
    shop.stash(range(150, 250))
    query = query_of(shop)
    with pytest.raises(CrashError):
        query.run(100, (batch, step))
    shop.stash(range(250, 300))
    query.run(100)
    query.assert_once_in_order(range(300), keys=KEYS)
    assert sorted(query.numbers()[:150]) == list(range(150)), "what is kept comes first"
    assert len(query.sink) == 4
    assert (shop.waiting(), shop.kept()) == (0, 300)


@pytest.mark.parametrize("seed", range(10))
def test_many_crashes_lose_and_repeat_nothing(local: Shop, seed: int) -> None:
    chance = random.Random(seed)
    query, written = query_of(local), 200
    local.keep(range(200))
    for _ in range(20):
        number = chance.randrange(30)
        local.stash(range(written, written + number))
        written += number
        with suppress(CrashError):
            crash = query.commits + chance.randrange(1, 4), chance.choice(STEPS)
            query.run(chance.randrange(1, 30), crash)
    query.run(100)
    query.assert_once_in_order(range(written), keys=KEYS)


@pytest.mark.parametrize("least", [0, 200, 800])
def test_a_harvester_is_fenced_in_the_middle(shop: Shop, least: int) -> None:
    shop.stash(range(3000))
    with shop.harvesting():
        while shop.kept() < least:
            time.sleep(0.001)
        query = query_of(shop)
        with pytest.raises(CrashError):
            query.run(100, (1, "planned"))
    kept = shop.kept()
    query.run(500)
    query.assert_once_in_order(range(3000), keys=KEYS)
    assert sorted(query.numbers()[:kept]) == list(range(kept))


def test_what_a_harvester_delivers_until_it_is_fenced_is_read(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.keep(range(100))
    shop.stash(range(100, 200))
    take_over = Claim._take_over

    def late(claim: Claim, *arguments: Any) -> Any:
        shop.deliver(50)
        return take_over(claim, *arguments)

    monkeypatch.setattr(Claim, "_take_over", late)
    query = query_of(shop)
    query.run(60)
    query.assert_once_in_order(range(200), keys=KEYS)
    assert sorted(query.numbers()[:150]) == list(range(150))


@pytest.mark.parametrize("step", ["purged and selected", "logged"])
def test_what_a_harvester_delivers_before_the_first_note_is_kept_and_read(shop: Shop, step: str) -> None:
    shop.keep(range(100))
    shop.stash(range(100, 300))
    query = query_of(shop)
    with pytest.raises(CrashError):
        query.run(60, (1, step))
    shop.deliver(150)
    query.run(60)
    query.assert_once_in_order(range(300), keys=KEYS)


def test_a_query_owns_the_outbox_from_its_first_kept_batch_on(local: Shop) -> None:
    local.keep(range(100))
    query = query_of(local)
    with pytest.raises(CrashError):
        query.run(60, (1, "planned"))
    with pytest.raises(OutboxError, match=r"was read by another query .*, batch 1"):
        query_of(local).run(60)
    query.run(60)
    older = Query(local.dialect, query.offsets[:1], 1, options=query.options)
    with pytest.raises(OutboxError, match="an older copy: it ends with batch 1"):
        older.run(60)


def test_another_leader_ends_the_query(local: Shop) -> None:
    local.keep(range(100))
    with closing(beginning(options_of(local))) as reader:
        first = reader.next(Offset(), 10)
        assert len(delivered(reader, Offset(), first)) == 10
        second = reader.next(first, 10)
        local.deliver(1)
        with pytest.raises(OutboxError, match="'harvester' has raised the fence"):
            reader.parts(first, second)


def test_only_a_new_query_begins_with_what_is_kept(local: Shop) -> None:
    local.keep(range(100))
    local.stash(range(100, 200))
    query = query_of(local, starting=Of.WAITING)
    query.run(60)
    assert sorted(query.numbers()) == list(range(100, 200))
    local.stash(range(200, 210))
    query.options = options_of(local)
    query.run(60)
    assert sorted(query.numbers()) == list(range(100, 210))


@pytest.mark.parametrize("step", STEPS)
def test_a_query_that_has_begun_goes_on_without_the_option(local: Shop, step: str) -> None:
    local.keep(range(100))
    local.stash(range(100, 150))
    query = query_of(local)
    with pytest.raises(CrashError):
        query.run(30, (2, step))
    query.options = options_of(local, starting=Of.WAITING)
    query.run(30)
    query.assert_once_in_order(range(150), keys=KEYS)


def test_superseded_records_are_left_out(shop: Shop) -> None:
    shop.stash(range(10))
    with closing(shop.dialect.connect()) as table:
        fence = table.enter(0, 1, table.bump(1, "harvester"))
        advanced = table.advance(fence, [], [], 10)
        ids = [record.id for record in advanced.records]
        table.advance(fence, [Batch.of(ids[::2], advanced.newest)], [], 0)
        assert table.supersede(fence, Batch.of(ids[1::2], advanced.newest)) == 5
    query = query_of(shop)
    query.run(3)
    assert query.numbers() == [0, 2, 4, 6, 8]
    assert shop.kept() == 10


def test_nothing_kept_is_no_beginning(local: Shop) -> None:
    query = query_of(local)
    query.run(10)
    assert not query.rows()
    local.keep(range(5))  # nobody has been told that the outbox is the query's
    local.stash(range(5, 10))
    query.run(10)
    query.assert_once_in_order(range(10), keys=KEYS)


def test_a_batch_is_bounded_by_bytes(shop: Shop) -> None:
    shop.keep(range(1000))
    query = query_of(shop, max_bytes=1000)
    query.run(500)
    query.assert_once_in_order(range(1000), keys=KEYS)
    sizes = [
        sum(len(row.record.key) + len(row.record.value or "") for row in batch)
        for batch in query.sink.values()
    ]
    assert 500 < sizes[0] <= 1000 >= max(sizes)
    with closing(beginning(options_of(shop))) as reader, pytest.raises(OutboxError, match="another query"):
        reader.next(Offset(), 1)


def test_a_record_that_exceeds_a_batch_is_one(local: Shop) -> None:
    local.keep(range(3))
    query = query_of(local, max_bytes=1)
    query.run(500)
    assert [len(batch) for batch in query.sink.values()] == [1, 1, 1]


@pytest.mark.parametrize("database", DATABASES)
def test_records_without_values_are_refused_before_anybody_is_fenced(
    shop_of: Callable[..., Shop], database: str
) -> None:
    shop = shop_of(database, without=["value"])
    shop.keep(range(10))
    token = shop.token()
    with pytest.raises(OutboxError, match="of 10 kept records 10 were kept without their value"):
        query_of(shop).run(10)
    assert shop.token() == token


def test_a_user_without_the_right_is_told_before_anybody_is_fenced(shop_of: Callable[..., Shop]) -> None:
    shop = shop_of("postgres")
    shop.keep(range(10))
    token, reader = shop.token(), f"reader_{uuid4().hex}"
    shop.execute(f"CREATE ROLE {reader} LOGIN PASSWORD 's3cret'")
    try:
        shop.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {reader}")
        shop.execute(f"REVOKE ALL ON outbox_kept FROM {reader}")
        address = make_conninfo(shop.data_source, user=reader, password="s3cret")
        options = read_options({"dataSource": address, "startingOffsets": "kept"})
        with pytest.raises(OutboxError, match=r"lacks the privileges SELECT on .*outbox_kept.*: GRANT"):
            Query(shop.dialect, options=options).run(10)
    finally:
        shop.execute(f"DROP OWNED BY {reader}")
        shop.execute(f"DROP ROLE {reader}")
    assert shop.token() == token


@pytest.mark.parametrize("database", DATABASES)
def test_a_table_that_is_not_there_is_told_before_anybody_is_fenced(
    shop_of: Callable[..., Shop], database: str
) -> None:
    shop = shop_of(database)
    shop.keep(range(10))
    token = shop.token()
    shop.execute("DROP TABLE outbox_kept")
    with pytest.raises(OutboxError, match="outbox_kept"):
        query_of(shop).run(10)
    assert shop.token() == token


def erase(shop: Shop, key: str) -> None:
    with closing(shop.dialect.erasing()) as erasing:
        assert isinstance(erasing, PortableErasing)
        assert sum(erasing.erase_kept(key, 1000)) > 0


def test_a_batch_whose_records_were_erased_ends_the_query_unless_it_may_lose_them(shop: Shop) -> None:
    shop.keep(range(100))
    query = query_of(shop)
    with pytest.raises(CrashError):
        query.run(60, (1, "delivered"))
    erase(shop, "k7")
    with pytest.raises(OutboxError, match=r"2 of 60 kept records of batch 1 are gone.*failOnDataLoss=false"):
        query.run(60)
    before = query.sink.pop(1)
    query.options = options_of(shop, fail_on_data_loss=False)
    query.run(60)
    assert sorted(query.numbers()) == [number for number in range(100) if number % KEYS != 7]
    assert query.sink[1] == [row for row in before if row.record.key != "k7"], "positions stay"


def test_what_is_erased_between_batches_is_left_out(shop: Shop) -> None:
    shop.keep(range(100))
    query = query_of(shop)
    with pytest.raises(CrashError):
        query.run(30, (1, "committed"))
    erase(shop, "k47")
    query.run(30)
    assert sorted(query.numbers()) == [number for number in range(100) if number % KEYS != 47]


def test_what_expires_between_batches_ends_the_query_unless_it_may_lose_it(shop: Shop) -> None:
    shop.keep(range(100))
    query = query_of(shop)
    with pytest.raises(CrashError):
        query.run(30, (1, "committed"))
    places = shop.positions()
    shop.execute(f"DELETE FROM outbox_kept WHERE position <= {places[39]}")
    with pytest.raises(OutboxError, match=f"up to position {places[-1]}, .*failOnDataLoss=false"):
        query.run(30)
    query.options = options_of(shop, fail_on_data_loss=False)
    query.run(30)
    assert sorted(query.numbers()) == [*range(30), *range(40, 100)]


def test_what_expires_once_it_is_read_is_no_loss(shop: Shop) -> None:
    shop.keep(range(100))
    query = query_of(shop)
    query.run(30)
    shop.execute("DELETE FROM outbox_kept")
    shop.stash(range(100, 150))
    query.run(30)
    query.assert_once_in_order(range(150), keys=KEYS)


def test_available_now_reads_all_that_is_kept(local: Shop) -> None:
    local.keep(range(100))
    local.stash(range(100, 110))
    with closing(beginning(options_of(local))) as reader:
        time.sleep(0.05)
        reader.claim.prepare_available_now()
        time.sleep(0.05)
        local.stash(range(110, 130))
        start, found = Offset(), 0
        while (end := reader.next(start, 100)) != start:
            found += len(delivered(reader, start, end))
            start = end
    assert found == 130  # what waits is read together
    assert local.waiting() == 0


def test_an_offset_of_waiting_rows_has_no_kept_position(local: Shop) -> None:
    local.keep(range(10))
    local.stash(range(10, 20))
    query = query_of(local)
    query.run(10)
    first, second = (offset.written() for offset in query.offsets)
    assert {*first} - {*second} == {"kept", "through"}
    assert {*second} == {"outbox", "query", "batch", "rows"}
