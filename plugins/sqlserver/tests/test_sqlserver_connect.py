"""Signing in over real sockets: who is trusted, what is encrypted, and what errors say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytds
import pytest
from outbox_api import AccessDenied, ConfigError, DriverError, FileText, Level
from outbox_servers.services import free_port
from outbox_sqlserver import SqlServerDialect, SqlServerOptions
from outbox_sqlserver.tds_socket import TdsSocket

from .tds_server import TdsServer, certificate, scrambled

SECRET = "ti;ger=5"
Serve = Callable[..., TdsServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[TdsServer] = []

    def start(file: Path | None = None, *, hangs_up: bool = False) -> TdsServer:
        servers.append(TdsServer(file, hangs_up=hangs_up))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate(tmp_path_factory.mktemp("keys"), "localhost")


def dialect(port: int, rest: str = "", host: str = "localhost") -> SqlServerDialect:
    source = f"Server=tcp:{host},{port};Database=shop;Uid=scott;Pwd={{{SECRET}}};{rest}"
    return SqlServerDialect(SqlServerOptions(data_source=source, connect_timeout=5.0))


def refused(of: SqlServerDialect) -> DriverError:
    with pytest.raises(DriverError) as caught:
        of.connect()
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(of.options)
    return caught.value


def test_nobody_listens() -> None:
    unreachable = dialect(free_port())
    error = refused(unreachable)
    assert error.retryable
    assert "SQL Server database 'shop' at localhost" in str(error)
    assert "Connection refused" in str(error)
    assert [finding.level for finding in unreachable.check()] == [Level.ERROR]


def test_a_host_without_an_address_may_get_one() -> None:
    assert refused(dialect(1433, host="nowhere.invalid")).retryable


def test_the_password_goes_through_tls_to_whom_the_authority_vouches_for(serve: Serve, trusted: Path) -> None:
    server = serve(trusted)
    error = refused(dialect(server.port, f"CAFile={trusted}"))
    assert isinstance(error, AccessDenied)
    assert "Login failed for user 'scott'" in str(error)
    assert "correct Uid in dataSource, or the password" in str(error)
    assert scrambled(SECRET) in server.login
    assert scrambled(SECRET) not in server.seen


def test_a_password_stands_apart_needs_no_braces_and_may_change(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "password"
    for password in ("""it's "my" \\ p@ss/w%rd; {x}} #ö?&=: '""", "new"):
        file.write_text(f"{password}\n")
        for apart, retryable in ((password, False), (FileText((file,)), True)):
            server = serve()
            source = f"Server=localhost,{server.port};Database=shop;Uid=scott;Encrypt=no"
            of = SqlServerDialect(SqlServerOptions(data_source=source, password=apart))
            error = refused(of)
            assert isinstance(error, AccessDenied)
            assert error.retryable is retryable
            assert scrambled(password) in server.login
            assert password not in repr(of.options)
    with pytest.raises(ConfigError, match="leave one of them out"):
        SqlServerOptions(data_source="Server=h;Pwd=one", password="two")


def test_a_stranger_is_sent_nothing(serve: Serve, trusted: Path) -> None:
    server = serve(trusted)
    error = refused(dialect(server.port))
    assert not error.retryable
    assert "an unknown authority has signed the server's certificate: set CAFile" in str(error)
    assert server.login == b""


def test_another_name_is_sent_nothing(serve: Serve, trusted: Path) -> None:
    server = serve(trusted)
    error = refused(dialect(server.port, f"CAFile={trusted};HostNameInCertificate=db.example"))
    assert not error.retryable
    assert "is for another host name" in str(error)
    assert server.login == b""


def test_whoever_trusts_anybody_is_still_encrypted(serve: Serve, trusted: Path) -> None:
    server = serve(trusted)
    assert isinstance(refused(dialect(server.port, "TrustServerCertificate=yes")), AccessDenied)
    assert scrambled(SECRET) in server.login
    assert scrambled(SECRET) not in server.seen


def test_a_server_that_does_not_encrypt_is_sent_nothing(serve: Serve) -> None:
    server = serve()
    error = refused(dialect(server.port))
    assert not error.retryable
    assert "does not encrypt" in str(error)
    assert server.login == b""


def test_nothing_is_encrypted_only_for_whoever_says_so(serve: Serve) -> None:
    server = serve()
    assert isinstance(refused(dialect(server.port, "Encrypt=no")), AccessDenied)
    assert scrambled(SECRET) in server.login


def test_a_server_that_hangs_up_is_tried_again(serve: Serve, trusted: Path) -> None:
    server = serve(trusted, hangs_up=True)
    assert refused(dialect(server.port, f"CAFile={trusted}")).retryable


def test_authorities_that_cannot_be_read_are_told(serve: Serve, trusted: Path) -> None:
    error = refused(dialect(serve(trusted).port, "CAFile=/nowhere/ca.pem"))
    assert not error.retryable
    assert "/nowhere/ca.pem" in str(error)


def test_a_redirection_is_not_followed(serve: Serve) -> None:
    wire = TdsSocket(("localhost", serve().port), 5)
    # The driver closes a connection on which nothing has failed, while it signs in, for this reason only.
    with pytest.raises(pytds.Error, match="redirects"):
        wire.close()


def test_the_driver_cannot_wait_for_ever(serve: Serve) -> None:
    wire = TdsSocket(("localhost", serve().port), 5)
    wire.ready(7)
    wire.settimeout(None)
    assert wire.gettimeout() == 7
    wire.close()
    with pytest.raises(pytds.InterfaceError, match="connection lost"):
        wire.sendall(b"x")
