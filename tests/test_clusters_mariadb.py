"""Two clusters with MariaDB, each of which is the other's replica."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from .clusters import Brokers, Clusters
from .harvesters import until
from .replication import MariaDbReplicas

pytestmark = [pytest.mark.timeout(400), pytest.mark.slow]

LONG, SHORT = "1h", "100ms"
"""Maximum delays: one that no test waits for, however slow the machine is, and one that is soon over."""
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
            replicas, brokers, topic, tmp_path, maximumDelay=LONG, arrivalColumn="arrival_time"
        )
        stack.callback(clusters.close)
        yield clusters


def restart_second(clusters: Clusters, delivery: str, delay: str) -> None:
    """Starts cluster 2's harvester, with another maximum delay than before."""
    for harvester in clusters[2].harvesters:
        if harvester.running:
            harvester.leave()
    clusters[2].affinity["maximumDelay"] = delay
    clusters.harvest([2], delivery=delivery)


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_own_records_once_then_those_of_a_lost_cluster(clusters: Clusters, delivery: str) -> None:
    clusters.harvest(delivery=delivery)
    clusters.stash(RECORDS)
    clusters.wait_until_empty()
    assert clusters.counts() == {1: {1: RECORDS}, 2: {2: RECORDS}}
    clusters[1].kill()
    clusters.stash(RECORDS)
    restart_second(clusters, delivery, SHORT)
    clusters.wait_until_empty()
    assert clusters.counts() == {1: {1: RECORDS, 2: RECORDS}, 2: {2: 2 * RECORDS}}


def test_a_returning_cluster_repeats_at_most_what_it_had_not_purged(clusters: Clusters) -> None:
    clusters.stash(RECORDS, [1])
    clusters.replicas.wait_until_same(RECORDS)
    with clusters.replicas.cut([(1, 2), (2, 1)]):
        restart_second(clusters, "exactly-once", SHORT)
        clusters.wait_until_empty([2])
        restart_second(clusters, "exactly-once", LONG)
        clusters.harvest([1], delivery="exactly-once")
        clusters.wait_until_empty([1])
    clusters.stash(10)
    clusters.wait_until_empty()  # deletions of rows that are gone have not stopped replication
    assert clusters.counts() == {1: {1: RECORDS + 10, 2: RECORDS}, 2: {2: 10}}


def test_arrival_is_when_a_row_came_to_this_replica(clusters: Clusters) -> None:
    replicas = clusters.replicas
    now, arrived = "SELECT UTC_TIMESTAMP(6)", "SELECT arrival_time FROM outbox"
    with replicas.cut([(2, 1)]):
        [(begun,)] = replicas.of[1].execute(now)
        clusters.stash(1, [1])
        [(cut_until,)] = replicas.of[1].execute(now)
    replicas.wait_until_same(1)
    [(here,)], [(there,)] = (replicas.of[number].execute(arrived) for number in (1, 2))
    assert begun <= here <= cut_until <= there
    replicas.of[1].execute("UPDATE outbox SET leader_id = 'a mark'")
    until(lambda: replicas.of[2].execute("SELECT leader_id FROM outbox") == (("a mark",),), "it comes", 120)
    assert replicas.of[2].execute(arrived) == ((there,),)
