"""PostgreSQL as a service: durable, restartable, crashable."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from socketserver import BaseRequestHandler, TCPServer
from typing import Literal

import psycopg
import pytest
from outbox_servers.services import PostgresServer, ServiceError
from outbox_servers.services.postgres_binaries import (
    embedded_binaries,
    local_binaries,
    major_version,
    readable_binaries,
    unprivileged_account,
)
from psycopg.conninfo import conninfo_to_dict, make_conninfo

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(settings={"max_connections": 20}) as running:
        yield running


@pytest.fixture(autouse=True)
def whole_again(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leaves a server that serves to the next test, whatever this one did to it."""
    yield
    if "server" in request.fixturenames:
        request.getfixturevalue("server").start()


@pytest.mark.parametrize("way", ["fast", "immediate", "kill"])
def test_committed_rows_survive_and_the_address_stays(
    server: PostgresServer, way: Literal["fast", "immediate", "kill"]
) -> None:
    dsn = server.create_database(f"survives_{way}")
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE t AS SELECT 42 AS x")
    open_transaction = psycopg.connect(dsn)
    open_transaction.execute("INSERT INTO t VALUES (43)")
    if way == "kill":
        server.kill()
        assert not server.running
        server.start()
    else:
        server.restart(way)
    with pytest.raises(psycopg.OperationalError):
        open_transaction.execute("SELECT 1")
    open_transaction.close()
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT x FROM t").fetchall() == [(42,)]


def test_it_is_durable_and_takes_settings(server: PostgresServer) -> None:
    with psycopg.connect(server.dsn) as connection:
        names = "fsync", "synchronous_commit", "full_page_writes", "max_connections"
        values = [connection.execute(f"SHOW {name}").fetchone() for name in names]
    assert values == [("on",), ("on",), ("on",), ("20",)]


def test_it_asks_for_the_password(server: PostgresServer) -> None:
    assert len(str(conninfo_to_dict(server.dsn)["password"])) == 32
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(make_conninfo(server.dsn, password="wrong"))


def test_each_server_has_a_password_of_its_own_that_others_cannot_read(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTBOX_CACHE", str(tmp_path))
    lines: list[str] = []
    with PostgresServer(progress=lines.append) as first, PostgresServer(progress=lines.append) as second:
        [cached] = tmp_path.glob("postgresql-data-*/")
        passwords = {
            (cached / "password").read_text(),
            *(str(conninfo_to_dict(each.dsn)["password"]) for each in (server, first, second)),
        }
        assert len(passwords) == 4
        for password in passwords - {conninfo_to_dict(second.dsn)["password"]}:
            with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
                psycopg.connect(make_conninfo(second.dsn, password=password))
        secrets = [cached / "password", cached / "data", second.folder / "password", second.folder / "data"]
        assert [each.stat().st_mode & 0o077 for each in secrets] == [0] * 4
    assert [line.split()[0] for line in lines] == ["Creating", "Starting", "Starting"]


def test_a_server_that_was_killed_at_its_first_start_gets_its_password(open_folder: Path) -> None:
    first = PostgresServer(folder=open_folder / "pg")
    for replaced in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            replace = PostgresServer._replace_password

            def killed(server: PostgresServer) -> None:
                kept = server._first_password.read_text()
                if replaced:  # noqa: B023 - called in this iteration alone
                    replace(server)  # noqa: B023 - likewise
                    server._first_password.write_text(kept)
                raise ServiceError("killed")

            patch.setattr(PostgresServer, "_replace_password", killed)
            with pytest.raises(ServiceError, match="killed"):
                first.start()
    with PostgresServer(folder=open_folder / "pg") as second, psycopg.connect(second.dsn):
        assert not second._first_password.exists()
    first.close()


def test_pause_freezes_it_and_resume_lets_it_go_on(server: PostgresServer) -> None:
    # The open connection is only delayed; a new one gets no answer.
    with psycopg.connect(server.dsn) as connection:
        server.pause()
        try:
            with pytest.raises(psycopg.errors.ConnectionTimeout):
                psycopg.connect(server.dsn, connect_timeout=2)
        finally:
            server.resume()
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_databases_can_be_dropped_under_their_users(server: PostgresServer) -> None:
    dsn = server.create_database('odd "name"')
    user = psycopg.connect(dsn)
    server.drop_database('odd "name"')
    with pytest.raises(psycopg.OperationalError):
        user.execute("SELECT 1")
    user.close()
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(dsn)


def test_a_named_folder_keeps_its_data_for_another_server(open_folder: Path) -> None:
    with PostgresServer(folder=open_folder / "pg") as first:
        first.create_database("kept")
    with PostgresServer(folder=open_folder / "pg") as second, psycopg.connect(second.dsn_of("kept")):
        pass
    assert (open_folder / "pg" / "data").is_dir()


def test_a_temporary_folder_is_gone_after_close() -> None:
    server = PostgresServer()
    with server:
        assert server.folder.is_dir()
    assert not server.folder.exists()
    assert not server.running
    server.close()


def test_a_wrong_setting_is_named_in_the_error() -> None:
    with (
        pytest.raises(ServiceError, match="no_such_setting"),
        PostgresServer(settings={"no_such_setting": "1"}),
    ):
        pass


def test_a_port_that_somebody_took_meanwhile_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with TCPServer(("127.0.0.1", 0), BaseRequestHandler) as taken:
        threading.Thread(target=taken.serve_forever, daemon=True).start()
        ports = [taken.server_address[1]]
        real = PostgresServer._choose_ports

        def choose(server: PostgresServer) -> None:
            if ports:
                server._port = ports.pop()
            else:
                real(server)

        monkeypatch.setattr(PostgresServer, "_choose_ports", choose)
        with PostgresServer() as server:
            assert server.port != taken.server_address[1]
        taken.shutdown()


def test_the_address_needs_a_start() -> None:
    server = PostgresServer()
    with pytest.raises(ServiceError, match="start"):
        _ = server.dsn
    server.close()


def test_the_embedded_binaries_are_the_newest_of_the_package() -> None:
    binaries = embedded_binaries()
    assert binaries is not None
    assert major_version(binaries) >= 18


def test_a_local_installation_serves_too() -> None:
    binaries = local_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL is installed on this machine; the embedded one is proven above")
    with PostgresServer(binaries=binaries) as server, psycopg.connect(server.dsn) as connection:
        assert connection.info.server_version // 10000 == major_version(binaries)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root must lend its binaries to another account")
def test_binaries_under_a_private_folder_are_copied(tmp_path: Path) -> None:
    source = embedded_binaries()
    assert source is not None
    package = tmp_path / "private" / source.parent.parent.name
    shutil.copytree(source.parent, package / source.parent.name, symlinks=True)
    libraries = source.parent.parent.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, package.with_name(libraries.name), symlinks=True)
    (tmp_path / "private").chmod(0o700)
    private = package / source.parent.name / "bin"
    copied = readable_binaries(private, unprivileged_account())
    try:
        assert copied != private
        with PostgresServer(binaries=private) as server, psycopg.connect(server.dsn):
            pass
    finally:
        root = copied.parents[2]
        shutil.rmtree(root)
        root.with_name(f"{root.name}.lock").unlink()
