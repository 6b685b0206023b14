"""Certificates are accepted and refused by OpenSSL for the reasons that they were made for."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from outbox_servers.certificates import Authority, Certificate


def _handshake(certificate: Certificate, trusted: Path, host: str) -> None:
    """Lets a client that trusts an authority connect to a server with the certificate, in memory."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate.both)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        ssl.create_default_context(cafile=str(trusted)).wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    while ends:
        for end in [*ends]:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            ends.remove(end)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_certificate_is_valid_for_its_hosts(tmp_path: Path, host: str) -> None:
    authority = Authority(tmp_path)

    _handshake(authority.issue("server"), authority.certificate, host)


def test_a_certificate_for_another_host(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        _handshake(authority.issue("server", ["example.org"]), authority.certificate, "localhost")


def test_an_expired_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        _handshake(authority.issue("server", expired=True), authority.certificate, "localhost")


def test_a_certificate_of_an_unknown_authority(tmp_path: Path) -> None:
    known, unknown = Authority(tmp_path, "known"), Authority(tmp_path, "unknown")

    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        _handshake(unknown.issue("server"), known.certificate, "localhost")


def test_only_the_owner_reads_keys(tmp_path: Path) -> None:
    certificate = Authority(tmp_path).issue("server")

    assert [path.stat().st_mode & 0o777 for path in (certificate.key, certificate.both)] == [0o600, 0o600]
