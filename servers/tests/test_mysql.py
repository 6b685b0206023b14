"""MySQL and MariaDB as services: durable, restartable, crashable."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest
from outbox_servers.services import MariaDbServer, MySqlServer, ServiceError, connect_mysql
from outbox_servers.services.mysql_binaries import MARIADB, MYSQL, embedded_installation, local_installation

pytestmark = pytest.mark.slow

Server = MySqlServer | MariaDbServer


@pytest.fixture(scope="module", params=[MySqlServer, MariaDbServer])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with request.param(settings={"max_connections": 20}) as running:
        yield running


@pytest.fixture(autouse=True)
def whole_again(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leaves a server that serves to the next test, whatever this one did to it."""
    yield
    if "server" in request.fixturenames:
        request.getfixturevalue("server").start()


def _ask(dsn: str, *statements: str) -> list[tuple[Any, ...]]:
    with connect_mysql(dsn, autocommit=True) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall())


def test_committed_rows_survive_and_the_address_stays(server: Server) -> None:
    dsn = server.create_database("survives")
    _ask(dsn, "CREATE TABLE t AS SELECT 42 AS x")
    with connect_mysql(dsn) as open_transaction, open_transaction.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (43)")
        server.kill()
        assert not server.running
        server.start()
        with pytest.raises(pymysql.OperationalError):
            cursor.execute("SELECT 1")
    assert _ask(dsn, "SELECT x FROM t") == [(42,)]


@pytest.mark.slow
def test_committed_rows_survive_a_restart(server: Server) -> None:
    dsn = server.create_database("restarted")
    _ask(dsn, "CREATE TABLE t AS SELECT 42 AS x")
    server.restart()
    assert _ask(dsn, "SELECT x FROM t") == [(42,)]


def test_it_is_what_it_says_durable_and_takes_settings(server: Server) -> None:
    ((version, flush, connections, characters),) = _ask(
        server.dsn,
        "SELECT version(), @@innodb_flush_log_at_trx_commit, @@max_connections, @@character_set_server",
    )
    assert ("MariaDB" in version) == (server.title == "MariaDB")
    assert (flush, connections, characters) == (1, 20, "utf8mb4")
    if server.title == "MySQL":
        assert _ask(server.dsn, "SELECT @@log_bin, @@sync_binlog") == [(1, 1)]


@pytest.mark.parametrize("user", ["root", ""])
def test_nobody_gets_in_without_the_password(server: Server, user: str) -> None:
    socket_file = str(server.folder / "data" / "mysqld.sock")
    for way in ({}, {"password": "wrong"}, {"unix_socket": socket_file}):
        options = {"user": user, "password": "", **way}
        with pytest.raises(pymysql.OperationalError, match="Access denied"):
            server.connect(**options)


def test_pause_freezes_it_and_resume_lets_it_go_on(server: Server) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        server.pause()
        try:
            with pytest.raises(pymysql.OperationalError, match=r"Lost connection|timed out"):
                server.connect(connect_timeout=1, read_timeout=1)
        finally:
            server.resume()
        cursor.execute("SELECT 1")
        assert cursor.fetchone() == (1,)


def test_databases_can_be_dropped_under_their_users(server: Server) -> None:
    dsn = server.create_database("odd `name%/")
    with connect_mysql(dsn) as user, user.cursor() as cursor:
        cursor.execute("CREATE TABLE t (x int)")
        cursor.execute("INSERT INTO t VALUES (1)")
        server.drop_database("odd `name%/")
        with pytest.raises(pymysql.OperationalError):
            cursor.execute("SELECT 1")
    with pytest.raises(pymysql.OperationalError, match="Unknown database"):
        connect_mysql(dsn)
    server.drop_database("odd `name%/")


def test_a_named_folder_keeps_its_data_for_another_server(tmp_path: Path) -> None:
    with MariaDbServer(folder=tmp_path / "maria") as first:
        first.create_database("kept")
    with MariaDbServer(folder=tmp_path / "maria") as second, connect_mysql(second.dsn_of("kept")):
        pass
    assert (tmp_path / "maria" / "data").is_dir()


@pytest.mark.slow
def test_another_version_can_be_asked_for() -> None:
    with MariaDbServer(version="10.11") as server:
        ((version,),) = _ask(server.dsn, "SELECT version()")
    assert version.startswith("10.11.")
    with pytest.raises(ServiceError, match=r"8\.4 can be fetched, and not 5"), MySqlServer(version="5"):
        pass


def test_a_wrong_setting_is_named_in_the_error() -> None:
    with pytest.raises(ServiceError, match="no-such-setting"), MariaDbServer(settings={"no_such_setting": 1}):
        pass


@pytest.mark.slow
def test_a_port_that_somebody_took_meanwhile_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = [taken.getsockname()[1]]
        real = MariaDbServer._choose_ports

        def choose(server: MariaDbServer) -> None:
            if ports:
                server._port = ports.pop()
            else:
                real(server)

        monkeypatch.setattr(MariaDbServer, "_choose_ports", choose)
        with MariaDbServer() as server:
            assert server.port != taken.getsockname()[1]


def test_mariadb_under_mysqls_name_is_not_taken_for_mysql(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = embedded_installation(MARIADB)
    for name in ("mysqld", "mariadbd"):
        script = tmp_path / name
        script.write_text(f'#!/bin/sh\nexec {" ".join(installed.command)} "$@"\n')
        script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert local_installation(MYSQL) is None
    found = local_installation(MARIADB)
    assert found is not None
    assert found.version == installed.version
    assert local_installation(MARIADB, "10.1") is None
