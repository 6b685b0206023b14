"""Connections to MySQL and MariaDB. Loads PyMySQL."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from math import ceil
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import uuid4

import pymysql
from outbox_api import ConfigError, DriverError, OutboxError
from outbox_api.portable.session import closing_at_errors
from pymysql.constants import CLIENT, CR

from outbox_mysql.options import DataSource, MySqlOptions
from outbox_mysql.quick_result import QuickResult

_SQL_MODE = "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"

_MANY = 2**64 - 1

_WHOLE: Mapping[str, object] = {
    "autocommit": 0,
    "completion_type": 0,
    "sql_select_limit": _MANY,
    "max_join_size": _MANY,
    "sql_big_selects": 1,
    "sql_safe_updates": 0,
}
"""Without these, a server's own settings could truncate a result, or end a session at a commit."""

_TCP: Mapping[str, int] = {
    "TCP_KEEPIDLE": 5,
    "TCP_KEEPINTVL": 2,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 10_000,
}
"""Options by which the client notices within about ten seconds that the server's host is gone."""

LOOK_SECONDS = 5.0
"""How often a session asks whether its server still takes writes."""

_BRIEF = 2
"""Seconds to wait for the server when the dialect ends a session."""


class HarvestConnection(pymysql.Connection):
    """A session that the server ends after ``idle_timeout``, and that reconnects before its next use.

    The harvester leaves a session idle only outside of transactions, so nothing is lost.
    """

    def __init__(self, options: MySqlOptions) -> None:
        self._options = options
        self._nonce = ""
        self._begin()

    def _begin(self) -> None:
        """Connects with what the data source, and the files that it is read from, say now."""
        options = self._options
        super().__init__(
            **_parameters(options),
            # An UPDATE that leaves a row as it was counts it, too.
            client_flag=CLIENT.FOUND_ROWS,
            read_timeout=options.statement_timeout + options.lock_timeout,
            write_timeout=options.statement_timeout,
        )

    def connect(self, sock: Any = None) -> None:
        """Connects, and sets the variables of the session."""
        self._used = self._looked = monotonic()  # before PyMySQL opens a cursor
        super().connect(sock)
        with closing_at_errors(self):
            _keep_alive(self._sock)  # type: ignore[attr-defined]  # not in its stubs
            version = str(self.get_server_info())  # type: ignore[no-untyped-call]  # in its stubs
            for statement in _session(self._options, mariadb="MariaDB" in version):
                self.query(statement)
            self._sign()
            self.commit()
        self._used = monotonic()

    def query(self, sql: str | bytes, unbuffered: bool = False) -> int:
        """Sends a statement; if it times out, ends the session on the server, too, and thereby its locks."""
        with self._ended():
            return super().query(sql, unbuffered)

    def commit(self) -> None:
        """Commits; as :meth:`query`."""
        with self._ended():
            super().commit()

    def rollback(self) -> None:
        """Rolls back; as :meth:`query`."""
        with self._ended():
            super().rollback()

    def _read_query_result(self, unbuffered: bool = False) -> int:
        """Reads a result; see :class:`QuickResult`."""
        if unbuffered:
            return int(super()._read_query_result(unbuffered))  # type: ignore[misc]
        self._result = None
        result = QuickResult(self)
        result.read()
        self._result = result
        if result.server_status is not None:
            self.server_status = result.server_status
        return result.affected_rows or 0

    @contextmanager
    def _ended(self) -> Iterator[None]:
        """Ends this session on the server after a time-out, as the server may not notice it."""
        try:
            yield
        except pymysql.OperationalError as error:
            if self._nonce and error.args[0] == CR.CR_SERVER_LOST and "timed out" in str(error):
                self._end()
            raise

    def _look(self) -> bool:
        """Returns whether the server takes writes; asks for what takes the server no time."""
        usual: float = self._read_timeout  # type: ignore[has-type]  # in its stubs
        self._read_timeout = self._options.connect_timeout
        try:
            with super().cursor() as cursor:
                cursor.execute("SELECT @@global.read_only")
                return not any(row[0] for row in cursor.fetchall())
        finally:
            self._read_timeout = usual

    def _sign(self) -> None:
        """Takes a named lock with a random name, by which :meth:`_end` finds this session again.

        The connection id would not do: the address may lead to another server by then, where another session
        has the same id. On a server without named locks (a cluster in strict mode) no session is ended.
        """
        self._nonce = ""
        nonce = f"outbox.{uuid4().hex}"
        try:
            self.query(f"SELECT GET_LOCK('{nonce}', 0)")
            self._nonce = nonce
        except pymysql.MySQLError:
            if not self.open:
                raise

    def _end(self) -> None:
        brief = {"connect_timeout": _BRIEF, "read_timeout": _BRIEF, "write_timeout": _BRIEF}
        with suppress(pymysql.MySQLError, OSError, OutboxError):
            other = pymysql.connect(**{**_parameters(self._options), **brief})
            try:
                with other.cursor() as cursor:
                    cursor.execute("SELECT IS_USED_LOCK(%s)", [self._nonce])
                    for (number,) in cursor.fetchall():
                        if number is not None:
                            other.kill(number)  # type: ignore[no-untyped-call]  # in its stubs
            finally:
                other.close()

    def cursor(self, cursor: Any = None) -> Any:
        """Opens a cursor for a transaction; connects anew if that may lead to a better session.

        The server may have ended this one, or may have become read-only: then the address may lead to another
        by now. A lane that finds nothing to mark would not notice, since it writes nothing.
        """
        now = monotonic()
        if self.open and (
            now - self._used > self._options.idle_timeout / 2 or now - self._looked > LOOK_SECONDS
        ):
            self._looked = now
            try:
                usable = self._look()
            except pymysql.MySQLError:
                usable = False
            if not usable:
                if self.open:
                    self.close()
                self._begin()
        self._used = now
        return super().cursor(cursor)


def _keep_alive(connection: Any) -> None:
    if connection.family == socket.AF_UNIX:
        return
    for name, value in _TCP.items():
        if hasattr(socket, name):  # not every system has each
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def open_plain(options: MySqlOptions) -> pymysql.Connection[Any]:
    """Opens a connection as an application would have, with transactions on."""
    return pymysql.connect(**_parameters(options), init_command=_set(_WHOLE))


def _parameters(options: MySqlOptions) -> dict[str, Any]:
    try:
        address = options.source
    except ConfigError as error:  # a file, which was right at the start, and may be again
        raise DriverError(f"cannot connect: {error}", retryable=True) from None
    parameters: dict[str, Any] = {
        "host": address.host or None,
        "port": address.port,
        "user": address.user or None,
        # As bytes: PyMySQL encodes text as Latin-1, servers expect UTF-8.
        "password": address.password.encode(),
        "database": address.database or None,
        "charset": "utf8mb4",
        "connect_timeout": options.connect_timeout,
        "autocommit": False,
        "sql_mode": _SQL_MODE,
        "program_name": "outbox",
        **_tls(address),
    }
    for key in ("unix-socket", "read-default-file", "read-default-group"):
        if value := address.query.get(key):
            parameters[key.replace("-", "_")] = value
    if file := address.query.get("read-default-file"):
        _readable("read-default-file", file)
    return parameters


def _tls(address: DataSource) -> dict[str, Any]:
    mode, query = address.tls, address.query
    if mode == "DISABLED":
        return {"ssl_disabled": True}
    if mode == "PREFERRED" and "ssl-cert" not in query:
        return {}  # what PyMySQL or the defaults file says
    for key in ("ssl-ca", "ssl-capath", "ssl-cert", "ssl-key"):
        if key in query:
            _readable(key, query[key])
    try:
        context = ssl.create_default_context(cafile=query.get("ssl-ca"), capath=query.get("ssl-capath"))
        # The certificates that MySQL generates do not pass the strict checks.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.check_hostname = mode == "VERIFY_IDENTITY"
        context.verify_mode = ssl.CERT_REQUIRED if mode.startswith("VERIFY") else ssl.CERT_NONE
        if cert := query.get("ssl-cert"):
            context.load_cert_chain(cert, query.get("ssl-key"), password=_no_password)
    except (OSError, ValueError) as error:
        files = ", ".join(f"{key} '{query[key]}'" for key in sorted(query) if key.startswith("ssl-c"))
        raise DriverError(
            f"cannot use the certificates of dataSource, {files}: {error}", retryable=False
        ) from error
    return {"ssl": context}


def _readable(key: str, file: str) -> None:
    path = Path(file).expanduser()
    try:
        if not path.is_dir():
            path.open("rb").close()
    except OSError as error:
        raise DriverError(
            f"cannot read {key} '{file}' of dataSource: {error.strerror}", retryable=False
        ) from error


def _no_password() -> str:
    raise ValueError("ssl-key has a password; name one without")


def _session(options: MySqlOptions, *, mariadb: bool) -> list[str]:
    """Returns the statements that set up a session; all supported servers have these variables."""
    lock, statement = _seconds(options.lock_timeout), _seconds(options.statement_timeout)
    idle = _seconds(options.idle_timeout)
    settings = {
        **_WHOLE,
        "time_zone": "'+00:00'",
        "innodb_lock_wait_timeout": lock,
        "lock_wait_timeout": lock,
        "net_read_timeout": idle,
        "net_write_timeout": idle,
    }
    if mariadb:
        # The server must not convert a long list of ids into a join.
        # It reads parked keys once, not for each row.
        settings |= {
            "optimizer_switch": "'materialization=on,in_to_exists=off'",
            "max_statement_time": statement,
            "idle_transaction_timeout": idle,
            # Where they are not 0, these two hold instead.
            "idle_readonly_transaction_timeout": idle,
            "idle_write_transaction_timeout": idle,
            "wait_timeout": f"GREATEST(@@wait_timeout, {idle})",  # a session is looked at before that
            "in_predicate_conversion_threshold": 0,
        }
    else:
        settings |= {
            "max_execution_time": statement * 1000,
            "wait_timeout": idle,
            # The server reads parked keys once, not for each row, and looks up a list of ids of any length.
            "optimizer_switch": "'materialization=on,subquery_materialization_cost_based=off'",
            "range_optimizer_max_mem_size": 0,
        }
    return [
        # Without gap locks, nobody who inserts waits for a mark.
        "SET SESSION TRANSACTION READ WRITE, ISOLATION LEVEL READ COMMITTED",
        _set(settings),
    ]


def _set(settings: Mapping[str, object]) -> str:
    return "SET SESSION " + ", ".join(f"{name} = {value}" for name, value in settings.items())


def _seconds(timeout: float) -> int:
    return max(1, ceil(timeout))
