"""Which hosts are this machine itself."""

from __future__ import annotations

import pytest
from outbox_api.support.tls import is_local


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST.",
        "db.localhost",
        "127.0.0.1",
        "127.8.8.8",
        "::1",
        "[::1]",
        "::ffff:127.0.0.1",
        "/var/run/postgresql",
        "@abstract",
        "",
    ],
)
def test_local(host: str) -> None:
    assert is_local(host)


@pytest.mark.parametrize(
    "host",
    [
        "db",
        "localhost.example.org",
        "notlocalhost",
        "10.0.0.1",
        "192.168.127.1",
        "0.0.0.0",
        "fe80::1",
        "::ffff:10.0.0.1",
        "127.example.org",
    ],
)
def test_remote(host: str) -> None:
    assert not is_local(host)
