"""A stream of Spark that begins with what is kept: each record once, in order, whatever is killed."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from .kept_trial import Shop, shop_in
from .sessions import session, started
from .sink_jars import environment, java_options
from .sink_trial import KEYS, SETTINGS, Application, Count, Query, count, read, writing

pytestmark = [pytest.mark.spark, pytest.mark.slow]

WAIT_SECONDS = 120
KEPT, WAITING, ROWS, BATCH = 1000, 300, 1500, 200
"""How many records are kept and wait when the query begins, and are written in the end; rows of a batch."""
BATCHES = (1, 2, 4, 5, 6)
"""After how many batches of the offset log the application is killed: of these, five are of kept records."""


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with session("kept") as made:
        yield made


@pytest.fixture(params=["postgres", "mariadb"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    return shop_in(request, tmp_path, request.param)


def run(spark: Any, shop: Shop, folder: Path, *, fails: int = -1, **more: str) -> Any:
    """Runs a query into a folder for each batch; the sink may fail once it has one."""

    def write(frame: Any, batch: int) -> None:
        frame.write.mode("overwrite").parquet(str(folder / "out" / f"batch={batch}"))
        if batch == fails:
            raise OSError("the sink is gone")

    frame = spark.readStream.format("outbox").options(**{**shop.options, **more}).load()
    writer = frame.writeStream.foreachBatch(write).trigger(availableNow=True)
    return started(writer.option("checkpointLocation", str(folder / "checkpoint")))


def ended(query: Any) -> str:
    with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark's own
        query.awaitTermination(WAIT_SECONDS)
    return str(raised.value)


def rows_of(spark: Any, folder: Path) -> list[Any]:
    return sorted(spark.read.parquet(str(folder / "out")).collect(), key=lambda row: row.position)


def assert_once(places: Sequence[Sequence[Any]], rows: int, kept: int) -> None:
    assert count(places, rows) == Count(0, 0, 0)
    assert sorted(int(each[-1]) for each in places[:kept]) == list(range(kept)), "what is kept comes first"


def test_a_new_query_begins_with_what_is_kept(spark: Any, shop: Shop, tmp_path: Path) -> None:
    shop.keep(range(500))
    shop.stash(range(500, 600))
    failing = run(spark, shop, tmp_path, fails=1, maxRecordsPerTrigger="200")
    assert "the sink is gone" in ended(failing)
    shop.stash(range(600, 700))
    query = run(spark, shop, tmp_path, maxRecordsPerTrigger="200")
    assert query.awaitTermination(WAIT_SECONDS)
    rows = rows_of(spark, tmp_path)
    assert_once([(row.id, row.position, row.key, bytes(row.value)) for row in rows], 700, 500)
    sizes = [spark.read.parquet(str(each)).count() for each in sorted((tmp_path / "out").glob("batch=*"))]
    assert sizes == [200, 200, 100, 200]
    assert {(row.topic, row.deleted, len(row.headers)) for row in rows} == {("orders", False, 0)}
    assert all(row.create_time for row in rows)
    assert (shop.waiting(), shop.kept()) == (0, 700)


def test_what_cannot_begin_with_kept_records_says_so(
    spark: Any, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    shop = shop_in(request, tmp_path, "sqlite", ["value"])
    assert run(spark, shop, tmp_path / "empty").awaitTermination(WAIT_SECONDS)
    shop.keep(range(10))
    text = ended(run(spark, shop, tmp_path / "1"))
    assert "of 10 kept records 10 were kept without their value ('keep.without')" in text
    with pytest.raises(Exception, match="'startingOffsets' is 'latest'; it is waiting or kept"):
        run(spark, shop, tmp_path, startingOffsets="latest")
    with pytest.raises(Exception, match="'startingOffsets' is an option of streams"):
        spark.read.format("outbox").options(**shop.options).load().count()
    assert "begins with what is kept by startingOffsets=kept" in ended(run(spark, shop, tmp_path, of="kept"))
    shop.execute("DROP TABLE outbox_kept")
    assert "there is no table of kept records" in ended(run(spark, shop, tmp_path / "2"))


@pytest.mark.timeout(1200)
def test_kills_lose_and_repeat_nothing_of_what_is_kept(shop: Shop, tmp_path: Path) -> None:
    chance = random.Random(4)
    shop.keep(range(KEPT))
    shop.stash(range(KEPT, KEPT + WAITING))
    query = Query("files", shop, [str(tmp_path / "table")], tmp_path / "query", BATCH)
    settings = {**SETTINGS, "spark.driver.extraJavaOptions": java_options()}

    def application(**more: Any) -> Application:
        return Application([query], settings, environment(), tmp_path / "driver.log", **more)

    with writing([shop], KEPT + WAITING, ROWS, KEYS, 5.0):
        for batches in BATCHES:
            with application() as driver:
                while len(query.logged("offsets")) < batches and driver.ended(0.01) is None:
                    pass
                threading.Event().wait(chance.random() / 2)
                logged, committed = query.logged("offsets"), query.logged("commits")
            assert len(logged) >= batches, (tmp_path / "driver.log").read_text(errors="replace")[-3000:]
            print(f"killed with {len(logged)} batches logged, {len(committed)} committed")  # noqa: T201
    with application(results=str(tmp_path / "results")) as driver:
        assert driver.ended(None) == 0, (tmp_path / "driver.log").read_text(errors="replace")[-3000:]
    assert_once(read(tmp_path / "results" / "files"), ROWS, KEPT)
    assert (shop.waiting(), shop.kept()) == (0, ROWS)
