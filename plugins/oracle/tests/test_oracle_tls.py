"""How a connection to Oracle is protected: what the check says, and what the driver meets on real sockets."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import oracledb
import pytest
from outbox_api import DriverError, Finding, Level
from outbox_oracle import OracleDialect, OracleOptions, check
from outbox_servers.certificates import Authority, Certificate

from .fake_oracle import FakeOracle

TWO_ADDRESSES = (
    "(DESCRIPTION=(ADDRESS=(PROTOCOL=tcps)(HOST=a)(PORT=1))(ADDRESS=(PROTOCOL=tcp)(HOST=b)(PORT=1))"
    "(CONNECT_DATA=(SERVICE_NAME=shop)))"
)
Listen = Callable[[Certificate], int]


@pytest.fixture
def listen() -> Iterator[Listen]:
    """Listens with a certificate on a port, and hangs up on whoever accepts it."""
    listeners: list[socket.socket] = []

    def listen(certificate: Certificate) -> int:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.certificate, certificate.key)
        listeners.append(socket.create_server(("127.0.0.1", 0)))
        Thread(target=serve, args=(listeners[-1], context), daemon=True).start()
        return int(listeners[-1].getsockname()[1])

    yield listen
    for listener in listeners:
        listener.close()


def serve(listener: socket.socket, context: ssl.SSLContext) -> None:
    try:
        with listener.accept()[0] as connection, context.wrap_socket(connection, server_side=True) as wrapped:
            wrapped.recv(1)
    except OSError:
        pass  # the client has turned away


@pytest.mark.parametrize(
    ("issue", "said"),
    [
        (lambda own, _: own.issue("old", expired=True), "has expired: renew it on the server"),
        (lambda own, _: own.issue("other", ["db.example"]), "is for another host name"),
        (lambda _, stranger: stranger.issue("server"), "set walletLocation to the file"),
    ],
)
def test_a_bad_certificate_is_told_with_its_cure(
    listen: Listen, tmp_path: Path, issue: Callable[[Authority, Authority], Certificate], said: str
) -> None:
    own, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    port = listen(issue(own, stranger))
    (tmp_path / "ewallet.pem").write_text(own.certificate.read_text())
    options = OracleOptions(
        data_source=f"oracle://scott:tiger@localhost:{port}/shop?ssl=true&retry_count=0",
        wallet_location=str(tmp_path),
    )
    with pytest.raises(DriverError) as caught:
        OracleDialect(options).connect()
    assert said in str(caught.value)
    assert not caught.value.retryable


@pytest.mark.parametrize(
    ("source", "protocol", "said"),
    [
        ("u/p@db:1521/shop", "tcp", "db in clear; the protocol is tcp"),
        ("oracle://u:p@db/shop?ssl=true", "tcps", ""),
        ("oracle://u:p@db/shop?ssl=true&ssl_server_dn_match=no", "tcps", "ssl_server_dn_match is off"),
        (
            TWO_ADDRESSES,
            "tcps",
            "a, b in clear; the protocol is tcp or tcps",
        ),
    ],
)
def test_the_check_warns_of_what_is_not_verified(
    monkeypatch: pytest.MonkeyPatch, source: str, protocol: str, said: str
) -> None:
    [finding] = transport(monkeypatch, source, protocol)
    assert finding.level is (Level.WARNING if said else Level.OK)
    assert said in finding.message
    assert not said or "ssl=true" in finding.cure


def test_a_connection_within_this_machine_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    assert transport(monkeypatch, "u/p@localhost:1521/shop", "tcp") == []


def transport(monkeypatch: pytest.MonkeyPatch, source: str, protocol: str) -> list[Finding]:
    fake = FakeOracle({"NETWORK_PROTOCOL": [(protocol,)]})
    monkeypatch.setattr(oracledb, "connect", lambda **_: fake)
    options = OracleOptions(data_source=source)
    return list(check.transport(OracleDialect(options).session(), options))
