"""Three clusters with PostgreSQL: who delivers what while all is well, and when clusters or links are lost.

docs/multi-cluster.md promises what is counted here.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from .clusters import KEYS, Brokers, Cluster, Clusters
from .harvesters import RUN, Measure, until
from .replication import SECONDS, PostgresReplicas, PostgresServers

pytestmark = [pytest.mark.timeout(400), pytest.mark.slow]

DELAY = 3600
"""The maximum delay in seconds, which no test waits for: rows are made older."""
RECORDS = 1500
"""Records of each cluster."""
BATCH = 500
"""Records of a batch, at most."""
FEW = 500
"""Records that are replicated slowly."""
MANY = 20_000
"""A backlog that takes a while."""
DAWDLE = 0.01
"""Seconds that a database takes longer for each row, so that a fault meets it at work on any machine."""

Open = Callable[..., Clusters]


@pytest.fixture(scope="module")
def servers() -> Iterator[PostgresServers]:
    servers = PostgresServers(3)
    with ExitStack() as stack:
        stack.callback(servers.close)
        servers.start()
        yield servers


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    brokers = Brokers(3)
    with ExitStack() as stack:
        stack.callback(brokers.close)
        brokers.start()
        yield brokers


@pytest.fixture
def open_clusters(servers: PostgresServers, brokers: Brokers, topic: str, tmp_path: Path) -> Iterator[Open]:
    """Opens three clusters with a maximum delay, and other options of the affinity."""
    with ExitStack() as stack:

        def open_clusters(**affinity: Any) -> Clusters:
            replicas = PostgresReplicas(servers, topic.replace("-", "_"))
            stack.callback(replicas.close)
            given = {"maximumDelay": f"{DELAY}s", "arrivalColumn": "arrival_time", **affinity}
            clusters = Clusters(replicas, brokers, topic, tmp_path, **given)
            stack.callback(clusters.close)
            return clusters

        yield open_clusters


def grow_old(clusters: Clusters, *origins: int, delays: float = 1.5) -> None:
    """Makes the rows of some clusters older than so many maximum delays in 2 and 3, as if they had waited."""
    within = ", ".join(map(str, origins))
    older = f"arrival_time = arrival_time - interval '{delays * DELAY} s' WHERE cluster_id IN ({within})"
    for number in (3, 2):  # whoever takes over first comes last
        clusters.replicas.of[number].execute(f"UPDATE outbox SET {older}")


def wait_until_there(clusters: Clusters, *origins: int) -> None:
    """Waits until 2 and 3 have what the test has stashed in some clusters that do not harvest."""
    for origin in origins:
        count = f"SELECT count(*)::int FROM outbox WHERE cluster_id = {origin}"
        for number in (2, 3):
            replica = clusters.replicas.of[number]
            until(lambda: replica.execute(count) == [(RECORDS,)], f"rows of {origin} come", SECONDS)  # noqa: B023 - called at once


def alone(*numbers: int) -> dict[int, dict[int, int]]:
    """Returns the counts of records that their own clusters deliver, each once."""
    return {number: {number: RECORDS} for number in numbers}


def test_each_record_is_delivered_once_in_its_own_cluster(open_clusters: Open) -> None:
    clusters = open_clusters()
    clusters.harvest()
    clusters.stash(RECORDS)
    clusters.wait_until_empty()
    assert clusters.counts() == alone(1, 2, 3)


def test_exactly_once_each_record_is_delivered_once_in_its_own_cluster(open_clusters: Open) -> None:
    clusters = open_clusters()
    clusters.harvest(delivery="exactly-once")
    clusters.stash(RECORDS)
    clusters.wait_until_empty()
    assert clusters.counts() == alone(1, 2, 3)


def test_without_affinity_each_record_is_delivered_in_every_cluster(open_clusters: Open) -> None:
    clusters = open_clusters()
    for cluster in clusters.of.values():
        cluster.affinity = {}
    # Everybody has the rows before anybody purges them, as where replication takes longer than a harvest.
    clusters.stash(RECORDS)
    clusters.replicas.wait_until_same(3 * RECORDS)
    with clusters.replicas.cut(clusters.replicas.between([1], [2], [3])):
        clusters.harvest()
        clusters.wait_until_empty()
    assert clusters.counts() == {origin: dict.fromkeys((1, 2, 3), RECORDS) for origin in (1, 2, 3)}


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_the_next_cluster_takes_over_alone(open_clusters: Open, delivery: str, measure: Measure) -> None:
    clusters = open_clusters()
    clusters.harvest(delivery=delivery)
    clusters[1].kill()
    clusters.stash(RECORDS)
    wait_until_there(clusters, 1)
    grow_old(clusters, 1)
    began = time.monotonic()
    clusters.wait_until_empty()
    measure(
        "from when rows are old until the successor has delivered and purged all", time.monotonic() - began
    )
    assert clusters.counts() == {1: {2: RECORDS}, **alone(2, 3)}


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_harvester_killed_amid_a_backlog(open_clusters: Open, delivery: str, measure: Measure) -> None:
    clusters = open_clusters()
    clusters.harvest([2, 3])
    clusters.stash(MANY, [1])
    clusters.replicas.wait_until_same(MANY)
    _dawdle(clusters, 1, "BEFORE DELETE", DAWDLE / 10)
    clusters.harvest(
        [1], delivery=delivery, limits={"sendConcurrency": 2, "maxRunRecords": RUN, "maxBatchRecords": BATCH}
    )
    # What is purged was delivered, and committed. Offsets of a topic count aborted records, too.
    until(lambda: clusters[1].replica.count() < MANY - 1000, "cluster 1 is at work", 60)
    clusters[1].kill()
    clusters.replicas.wait_until_same()  # what it has purged
    grow_old(clusters, 1)
    clusters.wait_until_empty()
    counts = clusters.counts()[1]
    repeated = counts[1] + counts.get(2, 0) - MANY
    measure("repeated by the successor of a harvester killed amid a backlog", repeated)
    assert 1000 < counts[1] < MANY
    assert 3 not in counts
    # Delivered and not purged was at most one run of each key, or of each of two lanes what two batches have.
    assert 0 <= repeated <= (RUN * KEYS if delivery == "at-least-once" else 4 * BATCH)


@pytest.mark.parametrize(("takeover", "times"), [("ranked", 1), ("all", 2)])
def test_a_takeover_where_purges_replicate_late(open_clusters: Open, takeover: str, times: int) -> None:
    """By the article's rule all others take over, and one's purges come too late for the other."""
    clusters = open_clusters(takeover=takeover)
    clusters.harvest([2, 3])
    clusters.stash(RECORDS, [1])
    clusters.replicas.wait_until_same(RECORDS)
    with clusters.replicas.cut([(2, 3), (3, 2)]):
        grow_old(clusters, 1)
        clusters.wait_until_empty([2] if times == 1 else [2, 3])
    clusters.wait_until_empty()
    successors = (2, 3)[:times]
    assert clusters.counts()[1] == dict.fromkeys(successors, RECORDS)


def test_two_clusters_lost_and_the_third_delivers(open_clusters: Open) -> None:
    clusters = open_clusters()
    clusters.harvest()
    clusters[1].kill()
    clusters[2].kill()
    clusters.stash(RECORDS)
    wait_until_there(clusters, 1, 2)
    grow_old(clusters, 1, 2, delays=2.5)
    clusters.wait_until_empty()
    assert clusters.counts() == {1: {3: RECORDS}, 2: {3: RECORDS}, 3: {3: RECORDS}}


def test_a_returning_cluster_repeats_nothing_once_it_has_caught_up(open_clusters: Open) -> None:
    clusters = open_clusters()
    clusters.harvest([2, 3])
    clusters.stash(RECORDS, [1])
    clusters.replicas.wait_until_same(RECORDS)
    clusters.replicas.servers.servers[1].stop("immediate")  # type: ignore[attr-defined]
    grow_old(clusters, 1)
    clusters.wait_until_empty([2, 3])
    clusters.replicas.servers.servers[1].start()  # type: ignore[attr-defined]
    clusters.wait_until_empty([1])  # its database has caught up
    clusters.harvest([1])
    clusters.stash(RECORDS, [2])
    clusters.wait_until_empty()
    assert clusters.counts() == {1: {2: RECORDS}, 2: {2: RECORDS}, 3: {}}


def test_a_returning_cluster_repeats_at_most_what_it_had_not_purged(open_clusters: Open) -> None:
    """The worst case: it harvests before anything that happened without it has come."""
    clusters = open_clusters()
    clusters.harvest([2, 3])
    clusters.stash(RECORDS, [1])
    clusters.replicas.wait_until_same(RECORDS)
    with clusters.replicas.cut(clusters.replicas.between([1], [2, 3])):
        clusters.stash(200, [1])  # committed, and not replicated when it is lost
        grow_old(clusters, 1)
        clusters.wait_until_empty([2, 3])
        clusters.harvest([1])
        clusters.wait_until_empty([1])
    clusters.wait_until_empty()
    assert clusters.counts()[1] == {1: RECORDS + 200, 2: RECORDS}


@pytest.mark.parametrize("arrival", ["", "arrival_time"])
def test_a_cut_link_that_is_healed(open_clusters: Open, arrival: str, measure: Measure) -> None:
    clusters = open_clusters(arrivalColumn=arrival)
    clusters.harvest()
    _stash_long_ago(clusters, 1)
    for number in (2, 3):  # what was missed takes long to come, so that rows are there before their purges
        _dawdle(clusters, number, "AFTER INSERT", DAWDLE, "REPLICA")
    with clusters.replicas.cut(clusters.replicas.between([1], [2, 3])):
        clusters[1].stash(FEW, per_transaction=1)
        clusters.wait_until_empty([1])
    clusters.replicas.wait_until_same()
    clusters.wait_until_empty()
    counts = clusters.counts()[1]
    measure(f"repeated after a cut, ages from {arrival or 'create_time'}", clusters.repeated())
    assert counts[1] == FEW
    if arrival:
        assert counts == {1: FEW}
    else:
        # Each that 2 or 3 took in before its purge was old enough at once.
        assert 0 < counts.get(2, 0) + counts.get(3, 0) <= 2 * FEW


def test_rows_that_were_in_the_outbox_when_the_link_was_cut(open_clusters: Open) -> None:
    clusters = open_clusters()
    clusters.harvest([2, 3])
    clusters.stash(RECORDS, [1])
    clusters.replicas.wait_until_same(RECORDS)
    with clusters.replicas.cut(clusters.replicas.between([1], [2, 3])):
        clusters.harvest([1])
        clusters.stash(RECORDS, [1])  # written during the cut: delivered and purged before it is healed
        grow_old(clusters, 1)
        clusters.wait_until_empty()
    clusters.wait_until_empty()
    clusters.replicas.wait_until_same()
    assert clusters.counts()[1] == {1: 2 * RECORDS, 2: RECORDS}


def _stash_long_ago(clusters: Clusters, number: int) -> None:
    """Has what a cluster writes from now on written before a takeover was due."""
    execute = clusters.replicas.of[number].execute
    execute(
        "CREATE FUNCTION backdate() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$BEGIN NEW.create_time := NEW.create_time - interval '{1.5 * DELAY} s'; RETURN NEW; END$$"
    )
    execute("CREATE TRIGGER backdate BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION backdate()")


def _dawdle(clusters: Clusters, number: int, what: str, seconds: float, whose: str = "") -> None:
    """Makes a cluster's database slow: for its own sessions, or where it applies what others did."""
    execute = clusters.replicas.of[number].execute
    execute(
        "CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$BEGIN PERFORM pg_sleep({seconds}); RETURN OLD; END$$"
    )
    execute(f"CREATE TRIGGER dawdle {what} ON outbox FOR EACH ROW EXECUTE FUNCTION dawdle()")
    if whose:
        execute(f"ALTER TABLE outbox ENABLE {whose} TRIGGER dawdle")


def test_a_deliberate_takeover_and_its_end(open_clusters: Open) -> None:
    clusters = open_clusters()
    clusters.harvest([2, 3])
    clusters.stash(RECORDS, [1])
    _takeover(clusters[2], "--from", "1", "--reason", "the data centre moves")
    clusters.wait_until_empty()
    _takeover(clusters[2], "--end", "1")
    clusters.stash(RECORDS, [1, 2])
    until(lambda: clusters.replicas.of[2].count() == RECORDS, "cluster 2 has delivered what is its own", 60)
    clusters.replicas.wait_until_same(RECORDS)  # nobody takes what cluster 1 has written since
    clusters.harvest([1])
    clusters.wait_until_empty()
    assert clusters.counts() == {1: {2: RECORDS, 1: RECORDS}, 2: {2: RECORDS}, 3: {}}


def _takeover(cluster: Cluster, *options: str) -> None:
    command = [sys.executable, "-m", "outbox_core", "takeover", "--file", str(cluster.settings), "--yes"]
    done = subprocess.run([*command, *options], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
