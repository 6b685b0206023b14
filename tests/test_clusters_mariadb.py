"""Two clusters with MariaDB, each of which is the other's replica."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from .clusters import Brokers, Clusters
from .harvesters import Measure, until
from .replication import MariaDbReplicas

pytestmark = pytest.mark.timeout(400)

DELAY = 8.0
RECORDS = 1500


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    brokers = Brokers(2)
    with ExitStack() as stack:
        stack.callback(brokers.close)
        brokers.start()
        yield brokers


@pytest.fixture
def clusters(brokers: Brokers, topic: str, tmp_path: Path) -> Iterator[Clusters]:
    with ExitStack() as stack:
        replicas = MariaDbReplicas()
        stack.callback(replicas.close)
        clusters = Clusters(
            replicas, brokers, topic, tmp_path, maximumDelay=f"{DELAY}s", arrivalColumn="arrival_time"
        )
        stack.callback(clusters.close)
        yield clusters


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_own_records_once_then_those_of_a_lost_cluster(
    clusters: Clusters, delivery: str, measure: Measure
) -> None:
    clusters.harvest(delivery=delivery)
    clusters.stash(RECORDS)
    clusters.wait_until_empty()
    assert clusters.counts() == {1: {1: RECORDS}, 2: {2: RECORDS}}
    clusters[1].kill()
    began = time.monotonic()
    clusters.stash(RECORDS)
    clusters.wait_until_empty()
    measure("from the last commit until the successor has delivered and purged all", time.monotonic() - began)
    assert clusters.counts() == {1: {1: RECORDS, 2: RECORDS}, 2: {2: 2 * RECORDS}}


def test_a_returning_cluster_repeats_at_most_what_it_had_not_purged(clusters: Clusters) -> None:
    clusters.harvest([2], delivery="exactly-once")
    clusters.stash(RECORDS, [1])
    clusters.replicas.wait_until_same(RECORDS)
    with clusters.replicas.cut([(1, 2), (2, 1)]):
        clusters.wait_until_empty([2])
        clusters.harvest([1], delivery="exactly-once")
        clusters.wait_until_empty([1])
    clusters.stash(10)
    clusters.wait_until_empty()  # deletions of rows that are gone have not stopped replication
    assert clusters.counts() == {1: {1: RECORDS + 10, 2: RECORDS}, 2: {2: 10}}


def test_arrival_is_when_a_row_came_to_this_replica(clusters: Clusters) -> None:
    replicas = clusters.replicas
    with replicas.cut([(2, 1)]):
        clusters.stash(1, [1])
        time.sleep(3)
    replicas.wait_until_same(1)
    waited = "SELECT TIMESTAMPDIFF(MICROSECOND, create_time, arrival_time) / 1e6 FROM outbox"
    assert replicas.of[1].execute(waited)[0][0] < 1
    assert replicas.of[2].execute(waited)[0][0] > 2
    replicas.of[1].execute("UPDATE outbox SET leader_id = 'a mark'")
    until(lambda: replicas.of[2].execute("SELECT leader_id FROM outbox") == (("a mark",),), "it comes", 120)
    assert replicas.of[2].execute(waited)[0][0] > 2
