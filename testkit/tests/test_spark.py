"""A standalone cluster runs a job, and goes on with what is left when a worker is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from outbox_testkit.services import SparkStandalone

pytestmark = pytest.mark.spark

# Two tasks on two workers: each leaves a mark when it starts and ends only when it finds the word to go on.
_DRIVER = """
import json, os, sys, time
from pathlib import Path
from pyspark.sql import SparkSession

folder = sys.argv[2]

def run(index, _rows):
    from pyspark import TaskContext
    task = TaskContext.get()
    executor = os.getcwd().rsplit("/", 1)[-1]
    Path(folder, f"started-{index}-{task.attemptNumber()}").write_text(f"{os.getpid()} {executor}")
    while not Path(folder, "go").exists():
        time.sleep(0.05)
    yield index, task.attemptNumber(), sys.executable

session = (
    SparkSession.builder.master(sys.argv[1])
    .config("spark.ui.enabled", "false")
    .config("spark.executor.memory", "512m")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
rows = session.sparkContext.parallelize(range(2), 2).mapPartitionsWithIndex(run).collect()
print(json.dumps(rows))
session.stop()
"""


def _wait_for(condition: Callable[[], bool], driver: subprocess.Popen[str], timeout: float = 90) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert driver.poll() is None, "the driver ended early"
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _alive(pid: int) -> bool:
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return state.stdout.strip()[:1] not in ("", "Z")


def test_a_job_survives_the_loss_of_a_worker(tmp_path: Path) -> None:
    with SparkStandalone(workers=2, cores=1) as cluster:
        assert len(cluster.master.live_workers()) == 2
        driver = subprocess.Popen(
            [sys.executable, "-c", _DRIVER, cluster.master_url, str(tmp_path)],
            env={**os.environ, **cluster.environment()},
            stdout=subprocess.PIPE,
            text=True,
        )
        with driver:
            _wait_for(lambda: len(list(tmp_path.glob("started-*-0"))) == 2, driver)
            lost = cluster.workers[0]
            processes = [int(each.read_text().split()[0]) for each in tmp_path.glob("started-*-0")]
            lost.kill()
            _wait_for(lambda: sum(map(_alive, processes)) == 1, driver)
            _wait_for(lambda: len(cluster.master.live_workers()) == 1, driver)
            (tmp_path / "go").touch()
            output, _ = driver.communicate(timeout=90)
        assert driver.returncode == 0
        rows = json.loads(output.splitlines()[-1])
        assert sorted(index for index, _attempt, _program in rows) == [0, 1]
        assert sorted(attempt for _index, attempt, _program in rows) == [0, 1]
        assert {program for _index, _attempt, program in rows} == {sys.executable}
        lost.start()
        assert len(cluster.master.live_workers()) == 2
        cluster.stop()
        assert not any(process.running for process in (cluster.master, *cluster.workers))
    assert not any(process.folder.exists() for process in (cluster.master, *cluster.workers))
