"""Connections to SQL Server. Loads the driver."""

from __future__ import annotations

import ssl
from typing import Any

import pytds
from outbox_api.portable.session import closing_at_errors
from pytds.instance_browser_client import resolve_instance_port

from outbox_sqlserver.options import DataSource, SqlServerOptions
from outbox_sqlserver.tds_socket import TdsSocket


def settings(options: SqlServerOptions) -> str:
    """Returns what every session of the dialect is set to.

    An error ends its transaction, waits end, and no default of the server's cuts rows or values short.
    """
    return (
        "SET ROWCOUNT 0; SET TEXTSIZE 2147483647; SET QUERY_GOVERNOR_COST_LIMIT 0; SET XACT_ABORT ON;"
        f" SET NOCOUNT OFF; SET LOCK_TIMEOUT {round(options.lock_timeout * 1000)};"
        " SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
    )


def connect(options: SqlServerOptions) -> Any:
    """Opens a connection whose transactions end with their first error; see :func:`connect_plain`."""
    connection = connect_plain(options)
    with closing_at_errors(connection):
        with connection.cursor() as cursor:
            cursor.execute(settings(options))
            while cursor.nextset():
                pass
        connection.commit()
    return connection


def connect_plain(options: SqlServerOptions) -> Any:
    """Opens a connection, with transactions on, encrypted unless the data source says otherwise."""
    source = options.source
    port = source.port or _browsed(source, options.connect_timeout)
    wire = TdsSocket((source.host, port), options.connect_timeout)
    try:
        if source.encrypt:
            wire.encrypt(_context(source), source.name)
        connection = pytds.connect(
            dsn=source.host,
            port=port,
            database=source.database or None,
            user=source.user,
            password=source.password,
            appname="outbox",
            sock=wire,
            # There is one attempt, over the one socket, whose time-outs are its own.
            login_timeout=0,
            disable_connect_retry=True,
        )
    except TimeoutError as error:  # what the driver makes of an attempt that failed
        wire.close(force=True)
        if isinstance(error.__cause__, pytds.Error):
            raise error.__cause__ from None
        raise pytds.InterfaceError("the server does not answer") from error
    except BaseException:
        wire.close(force=True)
        raise
    wire.ready(options.statement_timeout)
    return connection


def _context(source: DataSource) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=source.ca_file or None)
    except OSError as error:
        raise pytds.Error(f"cannot read the authorities in '{source.ca_file}': {error}") from error
    if source.trust:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _browsed(source: DataSource, timeout: float) -> int:
    try:
        return int(resolve_instance_port(source.host, None, source.instance.upper(), timeout))
    except (OSError, RuntimeError) as error:
        raise pytds.InterfaceError(f"cannot learn the instance's port: {error}") from error
