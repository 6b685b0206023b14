"""What PostgreSQL's errors mean: which are retryable, which deny access, and what a user can do."""

from __future__ import annotations

import re
import socket
import ssl
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg
from outbox_api import AccessDenied, DriverError, RolledBack, ServerFull
from outbox_api.file_text import login_refused
from outbox_api.portable import ErrorKind
from outbox_api.portable.session import AlreadyExists, LockTimeout, TableMissing
from outbox_api.tls import WRONG_HOST, certificate_cure
from psycopg import pq

from outbox_postgres.data_source import DataSource

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


RETRYABLE_CLASSES = frozenset({"08", "25", "40", "53", "57", "58", "XX"})
"""SQLSTATE classes of which a new connection may meet no error, nor one of a state that nobody knows yet:
connection, state of the transaction (read-only after a failover, ended after a time-out), rollback (deadlock,
serialization), resources, operator, system, and the server's own faults."""

RETRYABLE_STATES = frozenset(
    {
        "0A000",  # a cached plan that no longer fits an altered table: a new connection plans anew
        "55006",  # a database that is being moved or copied
        "55P03",  # a lock was not available in time
    }
)
ROLLED_BACK_STATES = frozenset({"40001", "40P01", "55P03", "57014"})
"""The server has told that the transaction is no more: serialization, deadlock, lock, timeout."""
PERMANENT_STATES = frozenset({"57P04", "XX001", "XX002"})  # the database was dropped; data are damaged

# A failed connection attempt has no SQLSTATE, only a text.
_LOGIN_DENIED = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "pg_hba.conf rejects",
    "is not permitted to log in",
    "permission denied",
)
_FULL = ("too many clients", "too many connections for", "remaining connection slots")
"""What PostgreSQL says to whoever connects while it has no connection left."""
_REFUSALS = (*_LOGIN_DENIED, "does not support SSL", "certificate", "invalid ")
_CURES = {
    "26000": "a pooler lost the prepared statement: connect directly, or set prepare: false",
    "42P05": "a pooler mixes up prepared statements: connect directly, or set prepare: false",
    "53100": "free disk space on the database server",
    "53300": "raise max_connections, or close idle connections",
    "25006": "the server is read-only, perhaps after a failover; connect to the primary",
    "55P03": "another transaction holds the lock for too long; see pg_blocking_pids",
    "57014": "the statement ran for longer than statementTimeout allows",
    "42501": "grant the permission to this user",
}


STANDBY_CURE = (
    "start it, or take it out of synchronous_standby_names; do not cancel the waits, as a failover could "
    "then undo what was purged"
)
"""What to do about a synchronous standby that is away."""

_KINDS = {
    "42P01": ErrorKind.NO_TABLE,
    "42P07": ErrorKind.EXISTS,
    "42710": ErrorKind.EXISTS,
    "23505": ErrorKind.EXISTS,
}


@contextmanager
def translated(source: DataSource, doing: str, but: type[psycopg.Error] | tuple[()] = ()) -> Iterator[None]:
    """Turns psycopg's errors into driver errors that say what was being done, without secrets and rows.

    Errors of the class ``but`` pass through.

    Raises:
        DriverError: Its cause is psycopg's error, unless the text of that contains a secret or a row.
    """
    try:
        yield
    except but:
        raise
    except psycopg.Error as error:
        text = _one_line(str(error))
        clean = source.scrub(_one_line(_without_rows(error)))
        cure = _CURES.get(error.sqlstate, "") if error.sqlstate else tls_cure(text, source.parameters)
        message = f"cannot {doing} in {source}: {clean}{f'; {cure}' if cure else ''}"
        cause = error if clean == text else None
        if error.sqlstate is None and refused(error):
            raise login_refused(message, source.files) from cause
        if refused(error):
            raise AccessDenied(message) from cause
        if any(words in text for words in _FULL):
            raise ServerFull(f"{message}; end other sessions, or raise max_connections") from cause
        raise _kind(error)(message, retryable=retryable(error)) from cause


def error_kind(error: Exception) -> ErrorKind:
    """Returns what an error means to statements that every database knows."""
    if not isinstance(error, psycopg.Error):
        return ErrorKind.PERMANENT
    if refused(error):
        return ErrorKind.ACCESS_DENIED
    if error.sqlstate in _KINDS:
        return _KINDS[error.sqlstate]
    return ErrorKind.TRANSIENT if retryable(error) else ErrorKind.PERMANENT


def _kind(error: psycopg.Error) -> type[DriverError]:
    if error.sqlstate in ROLLED_BACK_STATES:
        return LockTimeout if error.sqlstate == "55P03" else RolledBack
    return {ErrorKind.EXISTS: AlreadyExists, ErrorKind.NO_TABLE: TableMissing}.get(
        error_kind(error), DriverError
    )


def retryable(error: psycopg.Error) -> bool:
    """Returns whether the same call may succeed later, without a change by anybody."""
    state = error.sqlstate
    if state:
        if state in PERMANENT_STATES:
            return False
        return state in RETRYABLE_STATES or state[:2] in RETRYABLE_CLASSES
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    text = str(error)
    if "FATAL" in text and "does not exist" in text:
        return False
    return not any(refusal in text for refusal in _REFUSALS)


def refused(error: psycopg.Error) -> bool:
    """Returns whether the server denies the user a privilege or the login."""
    state = error.sqlstate or ""
    if state:
        return state == "42501" or state.startswith("28")
    return any(words in str(error) for words in _LOGIN_DENIED)


def _without_rows(error: psycopg.Error) -> str:
    """Returns an error's text without what it quotes of a row that violates a constraint."""
    text, detail = str(error), error.diag.message_detail
    return text.replace(detail, "…") if detail and (error.sqlstate or "").startswith("23") else text


def _one_line(text: str) -> str:
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())
