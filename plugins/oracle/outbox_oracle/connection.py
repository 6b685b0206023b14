"""Connections to Oracle. Loads the driver."""

from __future__ import annotations

from typing import Any

import oracledb
from outbox_api import present_text
from outbox_api.portable.session import closing_at_errors

from outbox_oracle.options import OracleOptions

SETTINGS = (
    # Texts are compared byte for byte, and moments that come without a zone are UTC.
    "ALTER SESSION SET NLS_COMP = BINARY NLS_SORT = BINARY TIME_ZONE = '+00:00'",
    # A commit returns when its redo is on the disk, whatever the instance prefers.
    "ALTER SESSION SET COMMIT_WAIT = FORCE_WAIT COMMIT_LOGGING = IMMEDIATE",
    "ALTER SESSION SET ISOLATION_LEVEL = READ COMMITTED",
)
"""What every session of the dialect is set to."""

KEEPALIVE_MINUTES = 1
"""Between two looks whether the server behind an idle connection is there."""


def connect(options: OracleOptions) -> Any:
    """Opens a connection whose commits wait for the disk, and which reads what is committed."""
    connection = connect_plain(options)
    with closing_at_errors(connection), connection.cursor() as cursor:
        connection.call_timeout = int(options.statement_timeout * 1000)
        connection.outputtypehandler = _whole
        for setting in SETTINGS:
            cursor.execute(setting)
    return connection


def connect_plain(options: OracleOptions) -> Any:
    """Opens a connection as an application would have; see :func:`connect`."""
    source = options.source
    # Given as nothing, a setting would still override what the connect string says.
    given = {
        "user": source.user,
        "password": source.password,
        "tcp_connect_timeout": options.connect_timeout,
        "config_dir": options.config_dir,
        "wallet_location": options.wallet_location,
        "wallet_password": present_text(options.wallet_password),
    }
    try:
        return oracledb.connect(
            dsn=source.dsn,
            expire_time=KEEPALIVE_MINUTES,
            **{name: value for name, value in given.items() if value},
        )
    except OSError as error:  # a name that cannot be resolved passes through the driver as it is
        raise oracledb.OperationalError(f"cannot reach it: {error}") from error


def _whole(cursor: Any, metadata: Any) -> Any:
    """Has large objects fetched with their rows, instead of a round trip for each."""
    kinds = {
        oracledb.DB_TYPE_CLOB: oracledb.DB_TYPE_LONG,
        oracledb.DB_TYPE_NCLOB: oracledb.DB_TYPE_LONG_NVARCHAR,
        oracledb.DB_TYPE_BLOB: oracledb.DB_TYPE_LONG_RAW,
    }
    kind = kinds.get(metadata.type_code)
    return kind and cursor.var(kind, arraysize=cursor.arraysize)
