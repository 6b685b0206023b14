"""What PostgreSQL's errors mean: which are retryable, which deny access, and what a user can do."""

from __future__ import annotations

import re
from typing import Final

from outbox_api.portable import ErrorKind
from outbox_api.support.tls import WRONG_HOST, certificate_cure, cure_of

NOT_VERIFIED: Final = re.compile(
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


_NO_DATABASE: Final = re.compile(r'FATAL: +database ".*" does not exist')

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
    "55P03": ErrorKind.LOCK_TIMEOUT,
    # The server has told that the transaction is no more: serialization, deadlock, time-out.
    **dict.fromkeys(("40001", "40P01", "57014"), ErrorKind.ROLLED_BACK),
}


def error_kind(error: Exception) -> ErrorKind:
    """Returns what an error means."""
    if refused(error):
        return ErrorKind.ACCESS_DENIED
    if any(words in str(error) for words in _FULL):
        return ErrorKind.FULL
    lasting = ErrorKind.TRANSIENT if retryable(error) else ErrorKind.PERMANENT
    return _KINDS.get(_state(error), lasting)


def cure(error: Exception) -> str:
    """Returns what a user can do about an error; empty if there is no advice."""
    text = str(error)
    if any(words in text for words in _FULL):
        return "end other sessions, or raise max_connections"
    if state := _state(error):
        return _CURES.get(state, "")
    if known := next((advice for words, advice in _WORDS.items() if words in text), ""):
        return known
    if _NO_DATABASE.search(text):
        return "create it: CREATE DATABASE …, or correct its name in dataSource; 'outbox init' makes none"
    if NOT_VERIFIED.search(text):
        return cure_of(error, "sslrootcert") or certificate_cure(None, "sslrootcert")
    return ""


def retryable(error: Exception) -> bool:
    """Returns whether the same call may succeed later, without a change by anybody."""
    from psycopg import InterfaceError, OperationalError  # noqa: PLC0415 - only who connects needs it

    state = _state(error)
    if state:
        if state in PERMANENT_STATES:
            return False
        return state in RETRYABLE_STATES or state[:2] in RETRYABLE_CLASSES
    if not isinstance(error, OperationalError | InterfaceError):
        return False
    text = str(error)
    if "FATAL" in text and "does not exist" in text:
        return False
    return not any(refusal in text for refusal in _REFUSALS)


def refused(error: Exception) -> bool:
    """Returns whether the server denies the user a privilege or the login."""
    if state := _state(error):
        return state == "42501" or state.startswith("28")
    return any(words in str(error) for words in _LOGIN_DENIED)


def without_rows(error: Exception) -> str:
    """Returns an error's text without what it quotes of a row that violates a constraint."""
    text, diag = str(error), getattr(error, "diag", None)
    detail = diag and diag.message_detail
    return text.replace(detail, "…") if detail and _state(error).startswith("23") else text


def _state(error: Exception) -> str:
    """Returns the SQLSTATE; empty for an error of the client."""
    return getattr(error, "sqlstate", None) or ""
