"""Which connections are warned of, and what is said of a certificate."""

import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest
from outbox_api import Level
from outbox_api.support.tls import (
    Protection,
    certificate_cure,
    cure_of,
    transport_finding,
    verification_error,
)
from outbox_servers.certificates import Authority, Certificate


@pytest.mark.parametrize("protection", Protection)
def test_a_connection_within_this_machine_needs_none(protection: Protection):
    assert transport_finding(["localhost", "/run/postgresql", "::1"], protection, "", "") == []


def test_whatever_crosses_a_network_is_judged():
    for protection in Protection:
        [finding] = transport_finding(["localhost", "db-1", "10.0.0.2"], protection, "mode is x", "do y")
        if protection is Protection.VERIFIED:
            assert (finding.level, finding.cure) == (Level.OK, "")
        else:
            assert (finding.level, finding.cure) == (Level.WARNING, "do y")
            assert "db-1, 10.0.0.2" in finding.message
            assert "localhost" not in finding.message
            assert finding.message.endswith("; mode is x")


BAD: dict[str, Callable[[Authority, Authority], Certificate]] = {
    "is for another host name": lambda own, _: own.issue("a", ["db.example"]),
    "has expired": lambda own, _: own.issue("b", expired=True),
    "set the file to the file with the certificate": lambda _, stranger: stranger.issue("c"),
}


@pytest.mark.parametrize("said", BAD)
def test_what_is_wrong_with_a_certificate_is_said(tmp_path: Path, said: str):
    own, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    context = ssl.create_default_context(cafile=str(own.certificate))
    with pytest.raises(ssl.SSLError) as caught:
        handshake(BAD[said](own, stranger), context)
    error = OSError("cannot connect")
    error.__cause__ = caught.value
    assert said in cure_of(error, "the file")


def test_what_has_no_name_here_is_quoted():
    assert "(revoked)" in certificate_cure(23, "the file", "revoked")
    assert "not valid yet" in certificate_cure(9, "the file")
    assert "cannot be verified:" in certificate_cure(None, "the file")


def test_other_errors_are_not_about_certificates():
    error = OSError("gone")
    error.__cause__ = error  # not for ever
    assert verification_error(error) is None
    assert cure_of(error, "the file") == ""


def handshake(certificate: Certificate, context: ssl.SSLContext) -> None:
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate.certificate, certificate.key)
    near, far = socket.socketpair()

    def serve() -> None:
        try:
            serving.wrap_socket(far, server_side=True).close()
        except OSError:
            far.close()

    thread = Thread(target=serve)
    thread.start()
    with near:
        try:
            context.wrap_socket(near, server_hostname="localhost").close()
        finally:
            near.close()
            thread.join()


def test_what_crosses_and_what_it_is_called():
    [finding] = transport_finding(
        ["etcd-1"], Protection.NONE, "TLS is off", "do y", subject="election", crossing="the election crosses"
    )
    assert finding.subject == "election"
    assert finding.message == "the election crosses the network to etcd-1 in clear; TLS is off"
