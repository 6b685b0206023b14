"""What a crash leaves in sinks of Spark: the verdicts of docs/spark.md; and its first program."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from outbox_servers.services.external import Postgres
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from . import spark_sinks
from .sink_jars import DELTA, DELTA_SETTINGS, KAFKA, environment, jars_of, java_options, older_pyspark
from .sink_tasks import numbers
from .sink_trial import SETTINGS, Application, Outbox, Query, count, created, read, writing

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]

PAGE = Path(__file__).parents[3] / "docs" / "spark.md"
ROWS = 800
ATTEMPTS = 3
"""How often the last application is started: on a busy machine Spark may give up on Python processes."""
BATCH = 200
ONCE, REPEATS = "exactly once", "may repeat a batch"


def verdicts() -> dict[str, str]:
    """Returns the verdict on each way of writing, as the page's table gives it."""
    rows = re.findall(r"^\|.*\| ((?:`\w+`,? )+)\| \*\*([^*]+)\*\*", PAGE.read_text("utf-8"), re.MULTILINE)
    return {name: verdict for names, verdict in rows for name in re.findall(r"\w+", names)}


def drained(
    queries: Sequence[Query], settings: Mapping[str, str], variables: Mapping[str, str], folder: Path
) -> dict[str, list[list[Any]]]:
    """Kills an application behind its sinks, and again before them; returns what they have in the end."""
    outboxes = [query.outbox for query in queries]
    log = folder / "driver.log"

    def application(**more: Any) -> Application:
        return Application(queries, settings, variables, log, **more)

    with writing(outboxes, ROWS // 2, ROWS, 50, 0.5):
        with application(fail=1) as driver:
            driver.wait_until_ready()
        for query in queries:
            assert max(query.logged("offsets")) == 1
            query.open_commit_log()
            assert max(query.logged("commits")) == 0
        with application(hold=2) as driver:
            driver.wait_until_ready()
        for query in queries:
            assert (max(query.logged("offsets")), max(query.logged("commits"))) == (2, 1)
    results = folder / "results"
    for _ in range(ATTEMPTS):
        with application(results=str(results)) as driver:
            if driver.ended(None) == 0:
                break
    else:
        pytest.fail(log.read_text(errors="replace")[-3000:])
    assert [outbox.waiting() for outbox in outboxes] == [0] * len(outboxes)
    return {each.name: read(each) for each in results.iterdir()}


@pytest.fixture
def outbox(postgres_server: Postgres) -> Iterator[Callable[[], Outbox]]:
    """Makes outboxes with half of the rows."""
    names = list[str]()

    def make() -> Outbox:
        names.append(f"test_{uuid.uuid4().hex}")
        made = Outbox("postgres", postgres_server.create_database(names[-1]))
        made.dialect.create()
        made.stash(range(ROWS // 2))
        return made

    yield make
    for name in names:
        postgres_server.drop_database(name)


def judge(sink: str, rows: Sequence[Sequence[Any]]) -> None:
    """Compares what a sink has with the page's verdict, and what has no id twice with what was stashed."""
    found = count(rows, ROWS)
    assert (found.lost, found.out_of_order) == (0, 0)
    if verdicts()[sink] == ONCE:
        assert found.twice == 0
    else:
        assert verdicts()[sink] == REPEATS
        assert found.twice >= BATCH
        assert len({row[0] for row in rows}) == ROWS


def test_sinks_of_the_installed_pyspark(
    outbox: Callable[[], Outbox], postgres_dsn: str, kafka_bootstrap: str, topic: str, tmp_path: Path
) -> None:
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute("CREATE TABLE orders (id BIGINT, position BIGINT, key TEXT, value TEXT)")
        connection.execute(
            "CREATE TABLE merged (id BIGINT PRIMARY KEY, position BIGINT, key TEXT, value TEXT)"
        )
    created(postgres_dsn)
    places = {
        "files": [str(tmp_path / "files" / "table")],
        "postgres_append": [postgres_dsn],
        "postgres_merge": [postgres_dsn],
        "stash": [postgres_dsn, topic],
        "kafka": [kafka_bootstrap, topic],
        "kafka_once": [kafka_bootstrap, f"{topic}-once"],
    }
    queries = [Query(sink, outbox(), into, tmp_path / sink, BATCH) for sink, into in places.items()]
    settings = {**SETTINGS, "spark.driver.extraJavaOptions": java_options(), "spark.jars": jars_of(KAFKA)}
    found = drained(queries, settings, environment(), tmp_path)
    with psycopg.connect(postgres_dsn) as connection:
        for sink, table in ("postgres_append", "orders"), ("postgres_merge", "merged"):
            rows = connection.execute(
                f"SELECT id, position, key, value FROM {table} ORDER BY position"
            ).fetchall()
            found[sink] = [list(row) for row in rows]
        stashed = connection.execute("SELECT id, id, kafka_key, kafka_value FROM outbox ORDER BY id")
        found["stash"] = [list(row) for row in stashed]
    for sink in places:
        judge(sink, found[sink])


def test_sinks_of_delta(outbox: Callable[[], Outbox], tmp_path: Path) -> None:
    sinks = ("delta_stream", "delta_transaction", "delta_append", "delta_merge")
    queries = [
        Query(sink, outbox(), [str(tmp_path / sink / "table")], tmp_path / sink, BATCH) for sink in sinks
    ]
    settings = {**SETTINGS, **DELTA_SETTINGS, "spark.jars": jars_of(DELTA)}
    found = drained(queries, settings, environment(older_pyspark()), tmp_path)
    for sink in sinks:
        judge(sink, found[sink])


def test_the_page_judges_what_was_tried() -> None:
    assert set(verdicts()) == {name for name, _ in inspect.getmembers(spark_sinks, inspect.isfunction)}


def test_the_program_of_the_page_publishes_each_row_once(
    outbox: Callable[[], Outbox], kafka_bootstrap: str, topic: str, tmp_path: Path
) -> None:
    made = outbox()
    made.execute(f"UPDATE outbox SET kafka_topic = '{topic}'")
    address = conninfo_to_dict(made.data_source)
    password = str(address.pop("password"))
    found = re.search(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found
    program = found[1]
    for shown, here in (
        ("host=db dbname=shop user=lakehouse", make_conninfo("", **address)),
        ("kafka:9092", kafka_bootstrap),
        ("/lake/", f"{tmp_path}/"),
        (".start()", ".trigger(availableNow=True).start()"),
    ):
        assert shown in program
        program = program.replace(shown, here)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment(), "SHOP_PASSWORD": password},
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(numbers(kafka_bootstrap, topic)) == list(range(ROWS // 2))
    assert made.waiting() == 0
