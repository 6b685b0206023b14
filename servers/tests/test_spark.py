"""A standalone cluster counts its workers, and leaves nothing behind."""

from __future__ import annotations

import time

import pytest
from outbox_servers.services import SparkStandalone

pytestmark = pytest.mark.spark


def wait_for_workers(cluster: SparkStandalone, number: int) -> None:
    deadline = time.monotonic() + 90
    while len(cluster.master.live_workers()) != number:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_killed_worker_is_missed_and_comes_back() -> None:
    with SparkStandalone(workers=2, cores=1) as cluster:
        wait_for_workers(cluster, 2)
        lost = cluster.workers[0]
        lost.kill()
        wait_for_workers(cluster, 1)
        lost.start()
        wait_for_workers(cluster, 2)
        cluster.stop()
        processes = [cluster.master, *cluster.workers]
        assert not any(process.running for process in processes)
    assert not any(process.folder.exists() for process in processes)
