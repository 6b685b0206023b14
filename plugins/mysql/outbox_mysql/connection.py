"""Connections to MySQL and MariaDB. The only module that loads PyMySQL, beside the idiom's errors."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from math import ceil
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import uuid4

import pymysql
from outbox_sdk import DriverError
from pymysql.constants import CLIENT, CR

from outbox_mysql.data_source import DataSource
from outbox_mysql.options import MySqlOptions

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
"""Without these a server's own settings could cut a result short, or end a session with a commit."""

_BRIEF = 2
"""Seconds to wait for the server when it is only told to end something."""


class HarvestConnection(pymysql.Connection):
    """A session that the server ends when it is silent for long, and that then begins anew by itself.

    A session that has to be silent for long has no transaction open, so nothing is lost with it.
    """

    def __init__(self, options: MySqlOptions) -> None:
        self._options = options
        self._nonce = ""
        self._used = monotonic()
        super().__init__(
            **_parameters(options),
            # A change that leaves a row as it was counts it all the same.
            client_flag=CLIENT.FOUND_ROWS,
            read_timeout=options.statement_timeout + options.lock_timeout,
            write_timeout=options.statement_timeout,
        )

    def connect(self, sock: Any = None) -> None:
        """Connects, and makes the session what marks and purges need."""
        super().connect(sock)
        try:
            version = str(self.get_server_info())  # type: ignore[no-untyped-call]  # in its stubs
            for statement in _session(self._options, mariadb="MariaDB" in version):
                self.query(statement)
            self._sign()
            self.commit()
        except BaseException:
            self.close()
            raise
        self._used = monotonic()

    def query(self, sql: str | bytes, unbuffered: bool = False) -> int:
        """Sends a statement; one that is given up is ended on the server, too, with all that it holds."""
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

    @contextmanager
    def _ended(self) -> Iterator[None]:
        """Ends this session on the server where it does not answer: it may not know that nobody listens."""
        try:
            yield
        except pymysql.OperationalError as error:
            if self._nonce and error.args[0] == CR.CR_SERVER_LOST and "timed out" in str(error):
                self._end()
            raise

    def _sign(self) -> None:
        """Has this session hold a lock of its own name, by which it is found again.

        By its number it is not: behind the address there may be another server by then, where the number is a
        stranger's. A server that has no such locks (a cluster in strict mode) ends no session.
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
        with suppress(pymysql.MySQLError, OSError):
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
        """Opens a cursor for a transaction, over a new session where the server may have ended the old."""
        now = monotonic()
        if self.open and now - self._used > self._options.idle_timeout / 2:
            try:
                self.ping(reconnect=False)
            except pymysql.MySQLError:
                self.connect()
        self._used = now
        return super().cursor(cursor)


def open_plain(options: MySqlOptions) -> pymysql.Connection[Any]:
    """Opens a connection as an application would have, with transactions on."""
    return pymysql.connect(**_parameters(options), init_command=_set(_WHOLE))


def _parameters(options: MySqlOptions) -> dict[str, Any]:
    address = options.address
    parameters: dict[str, Any] = {
        "host": address.host or None,
        "port": address.port,
        "user": address.user or None,
        # As bytes: PyMySQL takes text for Latin-1, and servers for UTF-8.
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
        return {}  # PyMySQL's own way, or that of the file of defaults
    for key in ("ssl-ca", "ssl-capath", "ssl-cert", "ssl-key"):
        if key in query:
            _readable(key, query[key])
    try:
        context = ssl.create_default_context(cafile=query.get("ssl-ca"), capath=query.get("ssl-capath"))
        # Certificates that MySQL makes by itself are not strictly correct.
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
    """Returns what makes a session ours; every server of either kind knows these variables."""
    lock, statement = _seconds(options.lock_timeout), _seconds(options.statement_timeout)
    idle = _seconds(options.idle_timeout)
    settings = {
        **_WHOLE,
        "time_zone": "'+00:00'",
        "innodb_lock_wait_timeout": lock,
        "lock_wait_timeout": lock,
        "net_write_timeout": idle,
    }
    if mariadb:
        # A long list of ids is a list of ids, and no table to be joined.
        # Parked keys are read once, and not for each row.
        settings |= {
            "optimizer_switch": "'materialization=on,in_to_exists=off'",
            "max_statement_time": statement,
            "idle_transaction_timeout": idle,
            "in_predicate_conversion_threshold": 0,
        }
    else:
        settings |= {
            "max_execution_time": statement * 1000,
            "wait_timeout": idle,
            # Parked keys are read once, and not for each row; a list of ids is looked up however long it is.
            "optimizer_switch": "'materialization=on,subquery_materialization_cost_based=off'",
            "range_optimizer_max_mem_size": 0,
        }
    return [
        # Gaps between rows are not locked, so that nobody who inserts waits for a mark.
        "SET SESSION TRANSACTION READ WRITE, ISOLATION LEVEL READ COMMITTED",
        _set(settings),
    ]


def _set(settings: Mapping[str, object]) -> str:
    return "SET SESSION " + ", ".join(f"{name} = {value}" for name, value in settings.items())


def _seconds(timeout: float) -> int:
    return max(1, ceil(timeout))
