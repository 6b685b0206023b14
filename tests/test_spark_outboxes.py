"""Several outboxes on one Spark application: what happens when it hangs, or is lost."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from outbox_servers.services import Kafka, SparkStandalone

from .harvesters import Harvester, Measure, until
from .test_many_outboxes import PARTITIONS, Outboxes
from .test_spark_lanes import START, on
from .topics import ends

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COUNT = 3
"""The number of outboxes."""


@pytest.fixture
def outboxes(tmp_path: Path, kafka_broker: Kafka, topic: str, postgres_dsn: str) -> Iterator[Outboxes]:
    made = Outboxes(tmp_path, kafka_broker, topic, {"pg": ("postgres", postgres_dsn, COUNT)})
    made.create()
    yield made
    for process in made.processes:
        process.close()


def arrived(outboxes: Outboxes) -> Counter[str]:
    """Returns how many records each topic has."""
    return Counter(
        {
            label: sum(ends(outboxes.admin, f"{outboxes.topic}-{label}", PARTITIONS).values())
            for label in outboxes.sections
        }
    )


def wait_until_all_flow(outboxes: Outboxes, seconds: float) -> None:
    """Waits until 20 more records of each outbox have arrived."""
    before = arrived(outboxes)
    until(
        lambda: min((arrived(outboxes) - before).get(label, 0) for label in outboxes.sections) >= 20,
        "records of each outbox arrive",
        seconds,
        pause=0.5,
    )


def jvm_of(process: Harvester) -> psutil.Process:
    (jvm,) = [each for each in process.family() if each.name() == "java"]
    return jvm


def test_a_jvm_that_hangs_is_replaced_for_all_its_outboxes(outboxes: Outboxes, measure: Measure) -> None:
    one = outboxes.start("one", engine="spark", limits={"sendConcurrency": 1})
    until(lambda: outboxes.counts() == [COUNT], "it leads all", START, pause=0.5)
    with outboxes.writing():
        wait_until_all_flow(outboxes, 60)
        hung = jvm_of(one)
        frozen_at = time.time()
        hung.suspend()
        for daemon in hung.children():
            for worker in daemon.children():
                worker.kill()  # lanes need no JVM until they are started again
        one.wait_for("the Spark application is given up: its JVM has not answered", 60, frozen_at)
        measure("frozen JVM to its end", time.time() - frozen_at)
        wait_until_all_flow(outboxes, START)
        measure("frozen JVM to records of every outbox", time.time() - frozen_at)
        assert not hung.is_running() or hung.status() == psutil.STATUS_ZOMBIE
        assert one.running
    outboxes.wait_until_empty(60)
    one.leave()
    outboxes.audit()


def test_a_master_that_comes_back_without_its_applications_gets_a_new_one(
    outboxes: Outboxes, measure: Measure
) -> None:
    with SparkStandalone(workers=1, cores=COUNT) as cluster:
        engine = on(cluster, COUNT)
        engine["settings"] |= {"spark.executor.cores": str(COUNT)}
        one = outboxes.start("one", engine=engine, limits={"sendConcurrency": 1})
        until(lambda: outboxes.counts() == [COUNT], "it leads all", START, pause=0.5)
        with outboxes.writing():
            wait_until_all_flow(outboxes, 60)
            killed_at = time.time()
            cluster.master.kill()
            cluster.master.start()
            back_at = time.time()
            one.wait_for("the Spark application is given up: it has", START, killed_at)
            measure("killed master to the end of its application", time.time() - killed_at)
            wait_until_all_flow(outboxes, START)
            measure("killed master to records of every outbox", time.time() - killed_at)
            measure("of which it was away", back_at - killed_at)
            assert one.running
        outboxes.wait_until_empty(60)
        one.leave()
    outboxes.audit()
