"""Replication of outboxes as docs/multi-cluster.md sets it up: what travels, what does not, what stops it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest
from outbox_api import Record
from outbox_demo.replication import PUBLISH, SETTINGS, SUBSCRIBE
from outbox_servers.services.postgres_binaries import major_version

from .harvesters import until
from .replication import (
    SECONDS,
    PostgresReplica,
    PostgresReplicas,
    PostgresServers,
    Replicas,
    block,
    settings,
)

RECORD = Record(topic="t", key="k", value="v")
OLD = Path("/usr/lib/postgresql/15/bin")
"""Debian's PostgreSQL 15, where it is installed."""


@pytest.fixture(scope="module", params=[pytest.param(15, marks=pytest.mark.slow), 16])
def servers(request: pytest.FixtureRequest) -> Iterator[tuple[PostgresServers, int]]:
    """Servers, and whose set-up they get: that for 15 works with newer ones, too."""
    binaries = OLD if request.param < 16 and OLD.exists() and major_version(OLD) == 15 else None
    servers = PostgresServers(3, binaries)
    with ExitStack() as stack:
        stack.callback(servers.close)
        servers.start()
        yield servers, request.param


@pytest.fixture
def replicas(servers: tuple[PostgresServers, int]) -> Iterator[PostgresReplicas]:
    with ExitStack() as stack:
        replicas = PostgresReplicas(servers[0], f"test_{uuid4().hex}", servers[1])
        stack.callback(replicas.close)
        yield replicas


def errors(replicas: PostgresReplicas, number: int) -> int:
    counted = "SELECT sum(apply_error_count)::int FROM pg_stat_subscription_stats"
    return int(replicas.of[number].execute(counted)[0][0])


def test_rows_and_deletions_travel_each_once(replicas: PostgresReplicas) -> None:
    for replica in replicas.of.values():
        replica.stash([RECORD] * 5)
    replicas.wait_until_same(15)
    origins = "SELECT cluster_id, count(*)::int, min(id) / 10 ^ 15 >= cluster_id FROM outbox GROUP BY 1"
    for number, replica in replicas.of.items():
        assert sorted(replica.execute(origins)) == [(1, 5, True), (2, 5, True), (3, 5, True)], number
    replicas.of[2].execute("DELETE FROM outbox WHERE cluster_id = 1")  # a takeover purges
    replicas.wait_until_same(10)


def test_marks_and_the_time_of_arrival_do_not_travel(replicas: PostgresReplicas) -> None:
    replicas.of[1].stash([RECORD])
    replicas.wait_until_same(1)
    replicas.of[1].execute("UPDATE outbox SET leader_id = gen_random_uuid(), arrival_time = 'epoch'")
    replicas.of[1].stash([RECORD])
    replicas.wait_until_same(2)
    unmarked = "SELECT count(*)::int FROM outbox WHERE leader_id IS NULL AND arrival_time > '2000-01-01'"
    assert [replicas.of[number].execute(unmarked) for number in (2, 3)] == [[(2,)], [(2,)]]


def test_fence_and_dead_letters_do_not_travel(replicas: PostgresReplicas) -> None:
    table = replicas.of[1].dialect.connect()
    table.bump(2, "cluster-1")
    table.begin_takeover(2, "a test")
    table.close()
    replicas.of[1].stash([RECORD])
    replicas.wait_until_same(1)
    travelled = "SELECT count(*)::int FROM outbox_fence WHERE holder = 'cluster-1'"
    assert replicas.of[2].execute(travelled) == [(0,)]


def test_a_row_that_several_delete_stops_nothing(replicas: PostgresReplicas) -> None:
    replicas.of[1].stash([RECORD])
    replicas.wait_until_same(1)
    with replicas.cut(list(replicas.links())):
        for replica in replicas.of.values():
            replica.execute("DELETE FROM outbox")
    for replica in replicas.of.values():
        replica.stash([RECORD])
    replicas.wait_until_same(3)
    assert not any(errors(replicas, number) for number in replicas.numbers)


def test_a_purge_by_a_third_that_comes_before_its_row(
    replicas: PostgresReplicas, servers: tuple[PostgresServers, int]
) -> None:
    """Cluster 3 takes over a row of 1, which 2 receives only later: with ``origin = none`` it stays there."""
    with replicas.cut([(2, 1)]):
        replicas.of[1].stash([RECORD])
        until(lambda: replicas.of[3].count() == 1, "the row comes to 3", SECONDS)
        replicas.of[3].execute("DELETE FROM outbox")
        until(lambda: replicas.of[1].count() == 0, "its deletion comes to 1", SECONDS)
        replicas.of[3].stash([RECORD])
        until(lambda: replicas.of[2].count() == 1, "what 3 wrote then comes to 2", SECONDS)
    replicas.of[1].stash([RECORD])
    until(lambda: replicas.of[1].count() == 2, "all is written", SECONDS)
    left = 1 if servers[1] == 16 else 0
    counted = "SELECT count(*)::int FROM outbox WHERE cluster_id = 1"
    until(lambda: replicas.of[2].execute(counted) == [(1 + left,)], "2 has caught up", SECONDS)


def test_equal_ids_of_two_writers_stop_a_subscription(replicas: PostgresReplicas) -> None:
    insert = "INSERT INTO outbox (id, kafka_topic, kafka_key) VALUES (7, 't', 'k')"
    with replicas.cut([(1, 2), (2, 1)]):
        replicas.of[1].execute(insert)
        replicas.of[2].execute(insert)
        replicas.of[2].stash([RECORD])
    until(lambda: errors(replicas, 1) > 0, "the subscription fails", SECONDS)
    assert replicas.of[1].count() == 1
    for number in (1, 2, 3):
        replicas.of[number].execute("DELETE FROM outbox WHERE id = 7")
    replicas.wait_until_same(1)


def test_marks_that_replicate_and_cross_leave_a_row_that_nobody_can_purge(
    replicas: PostgresReplicas, servers: tuple[PostgresServers, int]
) -> None:
    if servers[1] < 16:
        return  # without ``origin``, updates would go in circles for ever
    for replica in replicas.of.values():
        replica.execute("ALTER PUBLICATION outbox_changes SET TABLE outbox")
        replica.execute("ALTER PUBLICATION outbox_changes SET (publish = 'insert, update, delete')")
    replicas.of[1].stash([RECORD])
    replicas.wait_until_same(1)
    with ExitStack() as stack:
        marked = {}
        with replicas.cut([(1, 2), (2, 1)]):
            for number in (1, 2):
                table = replicas.of[number].dialect.connect()
                stack.callback(table.close)
                fence, leader_id = table.enter(0, 1, table.bump(1, f"cluster-{number}")), uuid4()
                (record,) = table.mark(fence, leader_id, 10)
                marked[number] = table, fence, leader_id, record.id
        crossed = {1: [(marked[2][2],)], 2: [(marked[1][2],)]}
        until(lambda: leaders(replicas) == crossed, "the marks cross", SECONDS)
        assert [table.purge(fence, mine, [row]).rows for table, fence, mine, row in marked.values()] == [0, 0]
    assert [replicas.of[number].count() for number in (1, 2)] == [1, 1]


@pytest.mark.parametrize("prepared", [True, False])
def test_the_columns_come_to_a_table_that_replicates_already(
    servers: tuple[PostgresServers, int], prepared: bool
) -> None:
    """Cluster 2 has its columns before cluster 1, whose rows come without a number meanwhile."""
    if servers[1] < 16:
        pytest.skip("the set-up for PostgreSQL 15 has a row filter by the column")
    replicas = UnnumberedReplicas(servers[0], f"test_{uuid4().hex}")
    one, two = replicas.of[1], replicas.of[2]
    try:
        if prepared:
            two.execute(block("postgresql: a table that replicates already"))
            one.execute(WRITE)
            until(lambda: two.count() == 1, "a row comes without the column", SECONDS)
            one.execute(block("postgresql: a table that replicates already"))
            one.execute(WRITE)
            until(lambda: two.count() == 2, "a row comes with the column", SECONDS)
        two.dialect.create()
        one.execute(WRITE)
        until(lambda: two.count() == (3 if prepared else 1), "a row comes", SECONDS)
        one.dialect.create()
        two.execute(WRITE)
        until(lambda: one.count() == two.count(), "a row comes back", SECONDS)
        numbers = "SELECT cluster_id FROM outbox ORDER BY id"
        found = [[number for (number,) in each.execute(numbers)] for each in (one, two)]
        assert found == ([[1, 1, 1, 2]] * 2 if prepared else [[1, 2], [2, 2]])
    finally:
        replicas.close()


WRITE = """
INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_header_keys, kafka_header_values)
VALUES (now(), 't', 'k', '{}', '{}')
"""


class UnnumberedReplicas(PostgresReplicas):
    """goharvest's table, which clusters 1 and 2 replicate without a column for the number."""

    def __init__(self, servers: PostgresServers, name: str) -> None:
        Replicas.__init__(self, 2)
        self.servers, self._name = servers, name
        for number in self.numbers:
            replica = PostgresReplica(
                number, servers.servers[number].create_database(name), self.affinity(number)
            )
            self.of[number] = replica
            replica.execute(GOHARVEST)
            replica.execute(f"SELECT setval('outbox_id_seq', {number}000000)")
            replica.execute(
                "CREATE PUBLICATION outbox_changes FOR TABLE outbox WITH (publish = 'insert, delete')"
            )
        for own, other in self.links():
            subscribe = block(
                "postgresql 16: each other cluster", OWN=own, OTHER=other, SOURCE=self.of[other].dsn
            )
            self.of[own].execute(subscribe)


GOHARVEST = """
CREATE TABLE outbox (
    id BIGSERIAL PRIMARY KEY,
    create_time TIMESTAMP WITH TIME ZONE NOT NULL,
    kafka_topic VARCHAR(249) NOT NULL,
    kafka_key VARCHAR(100) NOT NULL,
    kafka_value VARCHAR(10000),
    kafka_header_keys TEXT[] NOT NULL,
    kafka_header_values TEXT[] NOT NULL,
    leader_id UUID
)"""


def leaders(replicas: PostgresReplicas) -> dict[int, object]:
    return {number: replicas.of[number].execute("SELECT leader_id FROM outbox") for number in (1, 2)}


def test_the_demonstration_replicates_as_the_document_says() -> None:
    assert settings("postgresql.conf") == SETTINGS
    assert block("postgresql 16: each server", OWN="${OWN}") == PUBLISH
    values = {name: f"${{{name}}}" for name in ("OWN", "OTHER", "SOURCE")}
    assert block("postgresql 16: each other cluster", **values) == SUBSCRIBE
