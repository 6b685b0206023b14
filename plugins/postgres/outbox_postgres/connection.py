"""Opens connections to PostgreSQL. Loads psycopg."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import psycopg
from outbox_api import DriverError
from outbox_api.portable.session import closing_at_errors
from psycopg import pq
from psycopg.conninfo import make_conninfo
from psycopg.types.numeric import Int8BinaryDumper

from outbox_postgres import statements
from outbox_postgres.data_source import DataSource
from outbox_postgres.errors import NOT_VERIFIED
from outbox_postgres.options import PostgresOptions
from outbox_postgres.search_path import Connection

_PREPARED_AFTER = 5
"""Executions after which psycopg prepares a statement that nobody asked to be prepared."""


def connect(options: PostgresOptions, *, plain: bool = False) -> Connection:
    """Connects in autocommit mode, with parameters numbered as in the server's own protocol.

    Names and operators mean what the server's catalogue says, see :mod:`outbox_postgres.search_path`.

    Args:
        options: Where to.
        plain: Whether to leave out the settings of a session that harvests or looks, and to prepare nothing.
    """
    source = DataSource(options)
    try:
        connection = Connection.connect(
            make_conninfo(**source.parameters), autocommit=True, cursor_factory=psycopg.RawCursor
        )
    except psycopg.Error as error:
        raise error from _certificate_error(error, source.parameters)
    connection.parameters, connection.patience = source.parameters, source.patience
    connection.prepare_threshold = _PREPARED_AFTER if options.prepare and not plain else None
    # One width for every integer: a statement is then prepared once, not once for each size of a number.
    connection.adapters.register_dumper(int, Int8BinaryDumper)
    with closing_at_errors(connection):
        if connection.info.parameter_status("server_encoding") == "SQL_ASCII":
            raise DriverError(
                f"{source} has no encoding (SQL_ASCII), so that its texts may be of any; use a database with "
                "ENCODING UTF8",
                retryable=False,
            )
        connection.leave_search_path()
        if not plain:
            timeouts = (options.lock_timeout, options.statement_timeout)
            connection.execute(statements.SESSION, [f"{seconds * 1000:.0f}ms" for seconds in timeouts])
    return connection


def connect_as_application(options: PostgresOptions) -> psycopg.Connection[Any]:
    """Connects as psycopg does by default."""
    return psycopg.connect(make_conninfo(**DataSource(options).parameters))


_ASK_FOR_TLS: Final = struct.pack("!ii", 8, 80877103)
"""The protocol's SSLRequest, which a server answers with one letter."""

_TIMEOUT: Final = 3.0
"""Seconds that a look at a certificate may take."""


def _certificate_error(error: Exception, parameters: Mapping[str, str]) -> Exception | None:
    """Returns why a server's certificate could not be verified, which libpq does not say; connects for it."""
    found = NOT_VERIFIED.search(str(error))
    return _look(found["host"], int(found["port"]), _authorities(parameters)) if found else None


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
