"""Servers in Docker: `.ci/containers` makes sure that Docker and the images are available."""

from __future__ import annotations

import psycopg
import pytest
from outbox_servers import finding
from outbox_servers.containers import MARIADB_IMAGE, MYSQL_IMAGE, POSTGRES_IMAGE
from outbox_servers.services import MariaDbServer, MySqlServer, PostgresServer, ServiceError, connect_mysql
from testcontainers.core.docker_client import DockerClient


@pytest.fixture(autouse=True)
def _nothing_but_docker(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_self: object) -> None:
        raise ServiceError("nothing embedded here")

    for service in (PostgresServer, MySqlServer, MariaDbServer):
        monkeypatch.setattr(service, "start", refuse)


def _running(image: str) -> int:
    return len(DockerClient().client.containers.list(filters={"ancestor": image}))


def test_postgres() -> None:
    before = _running(POSTGRES_IMAGE)
    with finding.open_postgres({}) as server:
        assert _running(POSTGRES_IMAGE) == before + 1
        with psycopg.connect(server.create_database("made")) as connection:
            connection.execute("CREATE TABLE t AS SELECT 42 AS x")
        server.drop_database("made")
    assert _running(POSTGRES_IMAGE) == before


@pytest.mark.parametrize("brand", ["mysql", "mariadb"])
def test_mysql(brand: str) -> None:
    image = {"mysql": MYSQL_IMAGE, "mariadb": MARIADB_IMAGE}[brand]
    before = _running(image)
    with getattr(finding, f"open_{brand}")({}) as server:
        assert _running(image) == before + 1
        with connect_mysql(server.create_database("made")) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE t AS SELECT version() AS x")
            cursor.execute("SELECT x FROM t")
            ((version,),) = cursor.fetchall()
        server.drop_database("made")
    assert ("MariaDB" in version) == (brand == "mariadb")
    assert version.startswith(image.rpartition(":")[2])
    assert _running(image) == before
