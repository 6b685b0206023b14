"""Lanes on Spark: where they run, and what happens after the loss of a process below them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from outbox_servers.services import Service, SparkStandalone
from prometheus_client.parser import text_string_to_metric_families
from psycopg.conninfo import conninfo_to_dict

from .harvesters import RUN, SHORT_RUNS, Fleet, Harvester, Measure, until
from .shop import CUSTOMERS, Shop
from .test_takeover import NELI, SESSION

pytestmark = pytest.mark.spark

START = 150.0
"""Seconds that Spark may take to start: on a slow machine its JVM alone takes half a minute."""
STRANGER = ["unshare", "--user", "--map-user=54321"]
"""Runs a command under a user id without a name."""
BACKLOG = 40_000
LANES = 4
"""The number of lanes of these harvesters, in two groups."""
IN_FLIGHT = 20 * LANES
"""Records in flight at most where it matters."""


def lane_processes(family: Iterable[psutil.Process], shop: Shop) -> list[psutil.Process]:
    """Returns the processes with a connection to the database: those that run lanes."""
    port = int(conninfo_to_dict(shop.dsn)["port"] or 0)
    found = []
    for process in family:
        try:
            addresses = [
                each.raddr for each in process.net_connections("tcp") if each.status == "ESTABLISHED"
            ]
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue  # it has just ended
        if any(len(address) and address.port == port for address in addresses):
            found.append(process)
    return found


class Published:
    """What a harvester says that it has published; makes sure that it never says less than before."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._last = 0.0

    def read(self) -> float:
        with urllib.request.urlopen(f"{self._address}/metrics", timeout=30) as answer:
            families = text_string_to_metric_families(answer.read().decode())
        now = sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == "messaging_client_sent_messages_total" and "error_type" not in sample.labels
        )
        assert now >= self._last
        self._last = now
        return now


def attempts(shop: Shop) -> dict[int, tuple[int, int]]:
    """Returns lane → the leader's token, and how often the lane was started under it."""
    with shop.connect() as connection:
        fence = "SELECT lane, token::int, epoch::int FROM outbox_fence"
        rows = connection.execute(fence).fetchall()
    return {lane: (token, attempt) for lane, token, attempt in rows}


def wait_for_new_attempts(shop: Shop, before: dict[int, tuple[int, int]], lanes: int, timeout: float) -> None:
    """Waits until ``lanes`` lanes have restarted."""

    def anew() -> list[int]:
        return [lane for lane, attempt in attempts(shop).items() if attempt > before[lane]]

    until(lambda: len(anew()) >= lanes, f"{lanes} lanes start anew, of {before}", timeout)


def test_a_killed_lane_worker_comes_back_and_a_killed_jvm_hands_over(
    shop: Shop, fleet: Fleet, measure: Measure
) -> None:
    leader = fleet.start("a", engine="spark", elector=NELI, limits=SHORT_RUNS, http={"listen": "127.0.0.1:0"})
    leader.wait_for("starting Spark on local[", 60)
    leader.wait_for("Spark has started, after ", START)
    leader.wait_for("leader acquired", START)
    published = Published(leader.wait_for("serving on http://", 60).text.rpartition(" ")[2])
    standby = fleet.start("b", elector=NELI)
    until(lambda: fleet.members() == 2, "the standby is in the group", 60)
    with shop.selling():
        shop.wait_for_sales(200)
        until(lambda: published.read() >= 100, "the leader counts what its workers publish", 60)
        until(lambda: len(lane_processes(leader.family(), shop)) == 2, "lanes run in two processes", 60)
        until(lambda: len(attempts(shop)) == LANES, "all lanes run", 60)
        workers = lane_processes(leader.family(), shop)
        before = attempts(shop)
        killed_at = time.time()
        workers[0].kill()
        at_least = published.read()
        wait_for_new_attempts(shop, before, LANES // 2, 60)
        measure("killed lane worker to its lanes' new start", time.time() - killed_at)
        assert leader.running
        shop.wait_for_sales(200)
        until(lambda: published.read() >= at_least + 100, "it counts those of the new worker, too", 60)

        (jvm,) = [process for process in leader.family() if process.name() == "java"]
        killed_at = time.time()
        jvm.kill()
        code = leader.wait(60)
        measure("killed JVM to the end of its process", time.time() - killed_at)
        acquired_at = standby.wait_for("leader acquired", SESSION + 60, killed_at).at
        measure("killed JVM to acquired", acquired_at - killed_at)
        shop.wait_for_sales(200)
    shop.wait_until_harvested(60)
    result = shop.audit()
    assert result.good, result.summary()
    assert result.repeated <= 2 * RUN * len(CUSTOMERS)
    assert code == 1
    said = [line.text for line in leader.lines() if line.text.startswith("error: ")]
    assert len(said) == 1
    assert "JVM" in said[0]
    assert not any("Traceback" in line.text for line in leader.lines()), leader.tail()
    assert "[a] " in leader.wait_for("lane group", 60).text, "the line carries the harvester's name"
    until(lambda: not leader.family(), "what it started ends, too", 60)


def backlog(shop: Shop) -> int:
    with shop.connect() as connection:
        row = connection.execute("SELECT count(*)::int FROM outbox").fetchone()
    assert row is not None
    return int(row[0])


def told_to_end(harvester: Harvester) -> int:
    """Sends SIGTERM to all processes of a harvester, like a service manager; returns its exit code."""
    family, group = harvester.family(), os.getpgid(harvester.pid)
    os.killpg(group, signal.SIGTERM)
    for process in family:  # PySpark's workers have a process group of their own
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getpgid(process.pid) != group:
                process.terminate()
    return harvester.wait(60)


@pytest.mark.slow
def test_a_leader_without_a_group_hands_over_and_leads_anew_until_everybody_is_told_to_end(
    shop: Shop, fleet: Fleet, measure: Measure
) -> None:
    # Slow enough to be told amid the backlog, however late that is.
    limits = {"sendConcurrency": LANES, "maxInFlightRecords": IN_FLIGHT, "minMetricsInterval": "1s"}
    leader = fleet.start("a", engine="spark", elector=NELI, limits=limits)
    leader.wait_for("leader acquired", START)
    standby = fleet.start("b", elector=NELI)
    until(lambda: fleet.members() == 2, "the standby is in the group", 60)
    with shop.selling():
        shop.wait_for_sales(100)
        worker = until(lambda: lane_processes(leader.family(), shop), "lanes run", 60)[0]
        frozen_at = time.time()
        worker.suspend()
        acquired_at = standby.wait_for("leader acquired", SESSION + 60, frozen_at).at
        measure("frozen lane worker to acquired", acquired_at - frozen_at)
        shop.wait_for_sales(100)
        leader.wait_for("joined the election again", START, frozen_at)
        measure("frozen lane worker to standing by", time.time() - frozen_at)
        assert not worker.is_running(), "it ended with its Spark"
    standby.leave()
    shop.wait_until_harvested(60)

    repeated = shop.audit().repeated
    shop.stash(BACKLOG, keys=500)
    until(lambda: backlog(shop) < BACKLOG - 500, "the backlog is on its way", 60)
    told_at = time.time()
    assert told_to_end(leader) == 0, leader.tail()
    measure("SIGTERM for all to the end of the process", time.time() - told_at)
    assert backlog(shop), "it was told amid the backlog"
    assert not any("Traceback" in line.text for line in leader.lines())
    until(lambda: not leader.family(), "no process is left over", 60)
    fleet.start("c")
    shop.wait_until_harvested(60)
    result = shop.audit()
    assert result.good, result.summary()
    late = [each for each in leader.lines() if each.at > told_at and "did not drain" in each.text]
    assert result.repeated - repeated <= (IN_FLIGHT if late else 0), "all was drained, unless the log says so"


def can_be_a_stranger() -> bool:
    """Returns whether this machine permits a user id without a name."""
    with suppress(OSError):
        return not subprocess.run([*STRANGER, "true"], check=False, capture_output=True).returncode
    return False


@pytest.mark.slow
@pytest.mark.skipif(not can_be_a_stranger(), reason="there are no user namespaces here")
def test_a_user_without_a_name_can_run_lanes(tmp_path: Path) -> None:
    program = """
from outbox_core.config import configure
from outbox_core.engines.runner import LaneRunner
engine = LaneRunner(configure({"harvest": {"dataSource": "host=db dbname=shop"}}).harvest)
engine.warm()
print("warm")
engine.close()
"""
    places = {"HOME": "/", "TMPDIR": str(tmp_path), "SPARK_LOCAL_DIRS": str(tmp_path)}
    done = subprocess.run(
        [*STRANGER, sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        timeout=START,
        env={**os.environ, **places},
    )
    assert (done.returncode, done.stdout) == (0, "warm\n"), done.stderr


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkStandalone]:
    """Two workers with two slots each; the last test that uses it kills one."""
    with SparkStandalone(workers=2, cores=2) as cluster:
        yield cluster


def on(cluster: SparkStandalone, slots: int, **engine: Any) -> dict[str, Any]:
    """Returns the settings of an engine that has executors of one slot each on the cluster."""
    settings = {
        "spark.cores.max": str(slots),
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    return {"driver": "spark", "master": cluster.master_url, "settings": settings, **engine}


@pytest.mark.slow
def test_a_port_that_workers_cannot_reach_is_told_before_the_start(fleet: Fleet) -> None:
    # No process listens there: a port that workers cannot reach.
    apart = {"spark.driver.host": "127.0.0.2", "spark.driver.bindAddress": "127.0.0.1"}
    unreachable = fleet.start("unreachable", engine={"driver": "spark", "settings": apart})
    assert unreachable.wait(START) == 1
    assert "cannot reach the leader at 127.0.0.2:" in unreachable.tail()


@pytest.mark.slow
def test_too_few_slots_are_told_before_the_start(fleet: Fleet) -> None:
    few = fleet.start("few", engine={"driver": "spark", "master": "local[1]", "laneGroups": 3})
    assert few.wait(START) == 1
    assert "3 lane groups need as many task slots, and local[1] offers 1" in few.tail()
    assert "engine.laneGroups" in few.tail()


@pytest.mark.slow
def test_a_cluster_runs_lanes_on_both_workers_and_moves_those_of_a_killed_one(
    cluster: SparkStandalone, shop: Shop, fleet: Fleet, measure: Measure
) -> None:
    environment = cluster.environment()
    harvester = fleet.start(
        "a", engine=on(cluster, 2), environment=environment, elector=NELI, limits=SHORT_RUNS
    )
    harvester.wait_for("leader acquired", START)
    left, lost = cluster.workers

    def lanes_on(worker: Service) -> int:
        return len(lane_processes(psutil.Process(worker.pid).children(recursive=True), shop))

    with shop.selling():
        until(lambda: lanes_on(left) == lanes_on(lost) == 1, "a lane group runs on each worker", START)
        shop.wait_for_sales(200)
        before = attempts(shop)
        killed_at = time.time()
        lost.kill()
        wait_for_new_attempts(shop, before, LANES // 2, START)
        measure("killed Spark worker to its lanes' new start", time.time() - killed_at)
        until(lambda: lanes_on(left) == 2, "both lane groups run on the worker that is left", START)
        shop.wait_for_sales(200)
    shop.wait_until_harvested(60)
    assert harvester.running
    # The records that the lost lanes had in flight at their last report are not in flight any more.
    sold_at = shop.sell_one()
    harvester.wait_for(" 0 in flight, 0 waiting", 60, sold_at)
    result = shop.audit()
    assert result.good, result.summary()
    assert result.repeated <= RUN * len(CUSTOMERS)

    standby = fleet.start("b", elector=NELI)
    until(lambda: fleet.members() == 2, "the standby is in the group", 60)
    killed_at = time.time()
    left.kill()
    acquired_at = standby.wait_for("leader acquired", SESSION + 60, killed_at).at
    measure("killed last Spark worker to acquired", acquired_at - killed_at)
    shop.stash(10, keys=10)
    shop.wait_until_harvested(60)
    harvester.send(signal.SIGTERM)
    assert harvester.wait(60) == 0
