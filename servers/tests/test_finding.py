"""The choice of a service: the environment first, and a clear error last."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from outbox_servers import containers, finding
from outbox_servers.services import (
    EtcdServer,
    KafkaBroker,
    MariaDbServer,
    MySqlServer,
    PostgresServer,
    ServiceError,
    ZooKeeperServer,
)
from outbox_servers.services.external import ExternalPostgres


@pytest.fixture
def nothing_embedded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_self: object) -> None:
        raise ServiceError("nothing embedded here")

    for service in (PostgresServer, MySqlServer, MariaDbServer, KafkaBroker, EtcdServer, ZooKeeperServer):
        monkeypatch.setattr(service, "start", refuse)


@pytest.mark.usefixtures("nothing_embedded")
def test_the_environment_is_asked_first() -> None:
    with finding.open_postgres({"OUTBOX_TEST_POSTGRES": "host=db.example"}) as server:
        assert server.dsn == "host=db.example"
        assert server.dsn_of("other") == "host=db.example dbname=other"
    mysql = "mysql://a%40b:p%2Fq@db.example:3307/?ssl_ca=ca.pem"
    for opened in (
        finding.open_mysql({"OUTBOX_TEST_MYSQL": mysql}),
        finding.open_mariadb({"OUTBOX_TEST_MARIADB": mysql}),
    ):
        with opened as other:
            assert other.dsn == mysql
            assert other.dsn_of("odd/name") == mysql.replace("3307/", "3307/odd%2Fname")
    with finding.open_kafka({"OUTBOX_TEST_KAFKA": "kafka.example:9092"}) as broker:
        assert broker.bootstrap == "kafka.example:9092"
    with finding.open_zookeeper({"OUTBOX_TEST_ZOOKEEPER": "zk-1:2181,zk-2:2181"}) as zookeeper:
        assert zookeeper.hosts == "zk-1:2181,zk-2:2181"
    with finding.open_etcd({"OUTBOX_TEST_ETCD": "etcd.example:2379"}) as etcd:
        assert etcd.endpoint == "etcd.example:2379"


@pytest.mark.usefixtures("nothing_embedded")
def test_docker_is_asked_last(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []

    @contextmanager
    def container() -> Iterator[ExternalPostgres]:
        yield ExternalPostgres("host=container")
        closed.append(True)

    monkeypatch.setitem(containers.START, "postgres", container)
    with finding.open_postgres({}) as server:
        assert server.dsn == "host=container"
        assert closed == []
    assert closed == [True]


@pytest.mark.usefixtures("nothing_embedded")
@pytest.mark.parametrize("service", ["postgres", "mysql", "mariadb", "kafka", "etcd", "zookeeper"])
def test_none_at_all_is_an_error_with_every_reason(monkeypatch: pytest.MonkeyPatch, service: str) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    opened = getattr(finding, f"open_{service}")({})
    with pytest.raises(ServiceError, match="nothing embedded here") as caught, opened:
        pass
    assert f"OUTBOX_TEST_{service.upper()}" in str(caught.value)
    assert "Docker could not" in str(caught.value)


def test_a_container_that_does_not_get_ready_is_an_error_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow:
        stopped = 0

        def start(self) -> None:
            raise TimeoutError("it logged nothing")

        def stop(self) -> None:
            Slow.stopped += 1

    monkeypatch.setattr(containers, "MySqlContainer", lambda *_arguments, **_more: Slow())
    with (
        pytest.raises(ServiceError, match="could not start mariadb:11: it logged nothing"),
        containers.mariadb(),
    ):
        pass
    assert Slow.stopped == 1


def test_services_load_no_test_library() -> None:
    script = "import sys, outbox_servers.services; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "outbox_servers.services.kafka" in loaded
    assert loaded.isdisjoint({"pytest", "hypothesis", "testcontainers", "docker", "pyspark"})
