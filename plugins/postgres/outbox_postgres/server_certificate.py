"""What is wrong with a server's certificate. libpq says that it cannot be verified, and not why."""

from __future__ import annotations

import re
import socket
import ssl
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from outbox_sdk.tls import WRONG_HOST, certificate_cure
from psycopg import pq

_ASK_FOR_TLS: Final = struct.pack("!ii", 8, 80877103)
"""The protocol's SSLRequest, which a server answers with one letter."""

_TIMEOUT: Final = 3.0
"""Seconds that a look at a certificate may take."""

_NOT_VERIFIED: Final = re.compile(
    r'server at "(?P<host>[^"]+)"(?: \([^)]*\))?, port (?P<port>\d+) failed: SSL error: certificate verify'
)
_WORDS: Final = {
    "does not match host name": certificate_cure(WRONG_HOST, "sslrootcert"),
    "server does not support SSL": (
        "switch ssl on in the server; sslmode=disable would send everything in clear"
    ),
    "requires a valid client certificate": "set sslcert and sslkey in dataSource",
    "alert unknown ca": "the server does not trust the authority of this client's certificate, sslcert",
    "alert certificate expired": "this client's certificate has expired: renew the one of sslcert",
}


def tls_cure(text: str, parameters: Mapping[str, str]) -> str:
    """Returns what to do about an error of TLS; empty if it is none that is known.

    Connects to the server to see its certificate if libpq could not verify it.

    Args:
        text: libpq's error, in one line.
        parameters: libpq's connection parameters.
    """
    for words, cure in _WORDS.items():
        if words in text:
            return cure
    if found := _NOT_VERIFIED.search(text):
        error = _look(found["host"], int(found["port"]), _authorities(parameters))
        code, reason = (error.verify_code, error.verify_message) if error else (None, "")
        return certificate_cure(code, "sslrootcert", reason)
    return ""


def _authorities(parameters: Mapping[str, str]) -> str:
    """Returns libpq's setting ``sslrootcert``, from the environment if need be; empty for its own default."""
    if given := parameters.get("sslrootcert"):
        return given
    defaults = {option.keyword: option.val for option in pq.Conninfo.get_defaults()}
    return (defaults.get(b"sslrootcert") or b"").decode()


def _look(host: str, port: int, authorities: str) -> ssl.SSLCertVerificationError | None:
    """Connects as libpq does; returns why the server's certificate cannot be verified."""
    own = Path("~/.postgresql/root.crt").expanduser()
    try:
        context = ssl.create_default_context(
            cafile=None if authorities == "system" else authorities or str(own)
        )
        context.check_hostname = False  # libpq looks at the name afterwards
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        with socket.create_connection((host, port), _TIMEOUT) as connection:
            connection.sendall(_ASK_FOR_TLS)
            if connection.recv(1) == b"S":
                context.wrap_socket(connection, server_hostname=host).close()
    except ssl.SSLCertVerificationError as error:
        return error
    except (OSError, ValueError):
        return None
    return None
