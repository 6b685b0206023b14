"""The examples of Spark run unchanged: what they publish arrives once, also if a batch is repeated."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka.admin import AdminClient
from outbox_api import Record, Seam, Stasher, find
from outbox_servers.services import find_java
from outbox_spark.application import JAVA_OPTIONS

from .topics import ends, messages

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EXAMPLES = Path(__file__).parent.parent / "examples" / "spark"
SECONDS = 240
CITIES = {"ada": "Turin", "bob": "Cork"}
SETTINGS = f"""
spark.master local[2]
spark.driver.memory 1g
spark.driver.host 127.0.0.1
spark.driver.extraJavaOptions {JAVA_OPTIONS}
spark.python.authenticate.socketTimeout 2m
spark.ui.enabled false
spark.ui.showConsoleProgress false
spark.sql.shuffle.partitions 2
"""

Event = Mapping[str, object]


class Site:
    """An outbox with orders, a broker, and where a query keeps what it needs.

    Attributes:
        name: The name of this test in all keys, as others use the topics, too.
    """

    def __init__(self, data_source: str, bootstrap: str, folder: Path) -> None:
        self.name = uuid4().hex
        self._bootstrap, self._folder = bootstrap, folder
        driver = find(Seam.DIALECT, "postgres")
        self._dialect = driver.create(driver.options(data_source=data_source))
        self._dialect.create()
        (folder / "spark-defaults.conf").write_text(SETTINGS)
        self._variables = {
            **find_java().environment(),
            "SHOP_DATABASE": data_source,
            "KAFKA": bootstrap,
            "CHECKPOINT": str(folder / "checkpoint"),
            "CUSTOMERS": str(folder / "customers"),
            "SPARK_CONF_DIR": str(folder),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        }

    def customer(self, name: str) -> str:
        return f"{name}-{self.name}"

    def stash(self, events: Sequence[Event]) -> None:
        records = [Record("orders", str(each["customer"]), json.dumps(each)) for each in events]
        with closing(self._dialect.stash_connection()) as connection:
            Stasher().stash_many(connection, [*records, Record("others", "x", "no order")])
            connection.commit()

    def waiting(self) -> int:
        with closing(self._dialect.watch()) as view:
            return int(view.backlog().records)

    @contextmanager
    def running(self, example: str) -> Iterator[subprocess.Popen[bytes]]:
        """Runs an example until nothing waits, or until it fails."""
        with (self._folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, str(EXAMPLES / example)],
                stdout=log,
                stderr=log,
                env={**os.environ, **self._variables},
                start_new_session=True,
            )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def run_to_the_end(self, example: str) -> None:
        with self.running(example) as process:
            assert process.wait(SECONDS) == 0, (self._folder / "log").read_text()[-3000:]

    def crash_behind_the_sink(self, example: str) -> None:
        """Runs an example, and has it end between the sink and the commit log in its next batch."""
        offsets, commits = (self._folder / "checkpoint" / name for name in ("offsets", "commits"))
        before = set(offsets.iterdir())
        with self.running(example) as process:
            while not any(each.name.isdecimal() for each in set(offsets.iterdir()) - before):
                assert process.poll() is None, (self._folder / "log").read_text()[-3000:]
                time.sleep(0.002)  # a batch takes longer from there to its end
            commits.rename(commits.with_name("kept"))
            commits.touch()
            assert process.wait(SECONDS) != 0
        commits.unlink()
        commits.with_name("kept").rename(commits)

    def forget_commit(self) -> None:
        """Takes the last batch out of the commit log, as if the query had crashed just before."""
        commits = self._folder / "checkpoint" / "commits"
        newest = max(commits.glob("[0-9]*"), key=lambda path: int(path.name))
        newest.unlink()
        newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)

    def received(self, topic: str) -> list[Event]:
        """Returns the values of this test that are committed in a topic, in the order of each partition."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        partitions = len(admin.list_topics(topic, timeout=10).topics[topic].partitions)
        found = messages(self._bootstrap, topic, ends(admin, topic, partitions))
        own = self.name.encode()
        return [json.loads(each.value() or b"") for each in found if (each.key() or b"").endswith(own)]


@pytest.fixture
def site(postgres_dsn: str, kafka_bootstrap: str, tmp_path: Path) -> Site:
    return Site(postgres_dsn, kafka_bootstrap, tmp_path)


def test_orders_are_enriched_in_their_order_and_once(site: Site, tmp_path: Path) -> None:
    customers = [
        {"customer": site.customer(name), "city": city, "discount": 5} for name, city in CITIES.items()
    ]
    (tmp_path / "customers").mkdir()
    pq.write_table(pa.Table.from_pylist(customers), tmp_path / "customers" / "all.parquet")
    names = ("ada", "bob", "eve")
    events = [
        {"order": number, "customer": site.customer(names[number % 3]), "cents": 100 + number}
        for number in range(300)
    ]
    site.stash(events[:150])
    site.run_to_the_end("enriched_orders.py")
    site.stash(events[150:])
    site.crash_behind_the_sink("enriched_orders.py")
    assert len(site.received("enriched-orders")) == len(events), "it is published, and will be repeated"
    site.run_to_the_end("enriched_orders.py")
    assert site.waiting() == 0
    found = site.received("enriched-orders")
    for name in names:
        own = site.customer(name)
        known = {"city": CITIES[name], "discount": 5} if name in CITIES else {}
        wanted = [{**each, **known} for each in events if each["customer"] == own]
        assert [each for each in found if each["customer"] == own] == wanted
    assert len(found) == len(events)


def test_sums_are_published_once_when_they_are_final(site: Site) -> None:
    def order(number: int, name: str, minute: int, second: int = 0) -> Event:
        placed = f"2026-11-29T10:{minute:02}:{second:02}Z"
        return {"order": number, "customer": site.customer(name), "cents": 10 * number, "placed": placed}

    site.stash([order(1, "ada", 0), order(2, "ada", 0, 59), order(3, "bob", 0), order(4, "ada", 1)])
    site.run_to_the_end("sales_per_minute.py")
    site.stash([order(5, "bob", 0, 30), order(6, "bob", 30)])  # the former is late, and not too late
    site.run_to_the_end("sales_per_minute.py")
    site.forget_commit()  # of the batch without rows that has published what was final
    site.run_to_the_end("sales_per_minute.py")
    found = {
        (str(each["customer"]).split("-")[0], str(each["start"])[14:16]): (each["orders"], each["cents"])
        for each in site.received("sales-per-minute")
    }
    assert found == {("ada", "00"): (2, 30), ("ada", "01"): (1, 40), ("bob", "00"): (2, 80)}
    assert len(site.received("sales-per-minute")) == len(found)
