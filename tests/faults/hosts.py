"""Where a shop's database runs: each database's host."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from outbox_servers.services import MariaDbServer, MySqlServer, PostgresServer
from psycopg import sql
from psycopg.conninfo import make_conninfo

from .. import standbys  # noqa: TID252 - pytest gives tests no absolute name
from ..databases import MySql, Postgres, Sqlite  # noqa: TID252 - pytest gives tests no absolute name
from ..harvesters import until  # noqa: TID252 - pytest gives tests no absolute name
from .disk import SmallDisk
from .host import Host, Power, Server
from .proxy import MYSQL

USER = "harvester"
SECONDS = 30.0
SETTLING_SECONDS = 0.3
"""After this time a server has ended the transactions of connections that were cut."""
_GRANTS = f"""
GRANT ALL ON ALL TABLES IN SCHEMA public TO {USER};
GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {USER};
GRANT ALL ON SCHEMA public TO {USER};
"""


class PostgresHost(Host):
    """PostgreSQL, with its table on a disk of its own."""

    title = "PostgreSQL"
    powers = frozenset(Power)
    server: PostgresServer
    database: Postgres

    def _start(self) -> None:
        # Exits only after the server has ended.
        self.disk = self._stack.enter_context(SmallDisk())
        self.server = self._stack.enter_context(PostgresServer(settings=standbys.POSTGRES))
        self._give_name()
        self.database = Postgres(standbys.named(self.server.create_database("shop"), self.name.port))

    def version(self) -> str:
        with self.database.connect_at_once() as connection:
            number = connection.info.server_version
        return f"{number // 10000}.{number % 10000}"

    def source(self, name: str, port: int) -> str:
        account = {"user": USER, "password": self.password}
        return make_conninfo(self.database.named(name), port=port, **account)

    def admit(self) -> None:
        self.database.watch()
        role = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(USER), self.password)
        with self.database.connect_at_once() as connection:
            connection.execute(role)
            connection.execute(_GRANTS)
        self.disk.take(self.database, self.server)

    def restore(self) -> None:
        self.name.give()
        super().restore()
        valid = sql.SQL("ALTER ROLE {} PASSWORD {} VALID UNTIL 'infinity'")
        with self.administrating() as connection:
            connection.execute("ALTER SYSTEM RESET default_transaction_read_only")
            connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
            connection.execute("SELECT pg_reload_conf()")
            connection.execute(valid.format(sql.Identifier(USER), self.password))

    @contextmanager
    def read_only(self) -> Iterator[None]:
        self._refuse_writes("ON")
        try:
            yield
        finally:
            self._refuse_writes("OFF")

    def _refuse_writes(self, switch: str) -> None:
        standbys.ask(self.server, f"ALTER SYSTEM SET default_transaction_read_only = {switch}")
        standbys.ask(self.server, "SELECT pg_reload_conf()")

    def replicate(self) -> PostgresServer:
        successor = standbys.postgres_standby(self.server, self.disk.move(self.server))
        self._wait_for("*")
        synchronous = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
        until(lambda: standbys.ask(self.server, synchronous), "commits wait for the replica", SECONDS)
        return successor

    def _wait_for(self, standby: str) -> None:
        """Sets which standbys commits wait for."""
        standbys.ask(self.server, f"ALTER SYSTEM SET synchronous_standby_names = '{standby}'")
        standbys.ask(self.server, "SELECT pg_reload_conf()")

    def succeed(self, successor: Server, *, crash: bool = False) -> None:
        assert isinstance(successor, PostgresServer)
        if crash:
            self.server.kill()
            self.name.take()
        else:
            self.name.take()
            time.sleep(SETTLING_SECONDS)  # for what the application has begun
            self._refuse_writes("ON")
            time.sleep(SETTLING_SECONDS)  # for the harvesters' transactions that have begun
            standbys.wait_for_standby(self.server, successor)
        standbys.promote(successor)
        if not crash:
            self._wait_for("")
        self._hand_over(successor)
        self._refuse_writes("OFF")
        self._wait_for("")

    @contextmanager
    def administrating(self) -> Iterator[Any]:
        """Connects as the superuser, directly, in autocommit mode, and allowed to write."""
        with self.database.connect_at_once() as connection:
            connection.execute("SET default_transaction_read_only = off")
            yield connection


class MySqlHost(Host):
    """MySQL."""

    title = "MySQL"
    powers = frozenset({Power.SERVER, Power.EVICTION, Power.READ_ONLY})
    speech = MYSQL
    server: MySqlServer | MariaDbServer

    def _start(self) -> None:
        self.server = self._make()
        self._stack.enter_context(self.server)
        self._give_name()
        dsn = self.server.create_database("shop")
        self.database = MySql(dsn.replace(f":{self.server.port}/", f":{self.name.port}/"))

    def _make(self) -> MySqlServer | MariaDbServer:
        return MySqlServer()

    def version(self) -> str:
        (row,) = self.database.fetch("SELECT VERSION()")
        return str(row[0]).partition("-")[0]

    def source(self, name: str, port: int) -> str:
        # Without TLS, so that a proxy can read the protocol.
        address = urlsplit(self.database.named(name))
        place = f"{USER}:{self.password}@127.0.0.1:{port}"
        return address._replace(netloc=place, query="ssl-mode=DISABLED").geturl()

    def doing(self) -> str:
        with self.server.connect() as connection, connection.cursor() as cursor:
            said = []
            for statement in "SHOW FULL PROCESSLIST", "SHOW ENGINE INNODB STATUS":
                cursor.execute(statement)
                said += ["\t".join(map(str, row)) for row in cursor.fetchall()]
        return "\n".join(said)

    @contextmanager
    def read_only(self) -> Iterator[None]:
        standbys.ask(self.server, "SET GLOBAL read_only = 1")
        try:
            yield
        finally:
            standbys.ask(self.server, "SET GLOBAL read_only = 0")

    def restore(self) -> None:
        self.name.give()
        super().restore()
        standbys.ask(self.server, "SET GLOBAL read_only = 0")

    def admit(self) -> None:
        with self.server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE USER {USER}@'%%' IDENTIFIED BY %s", [self.password])
            cursor.execute(f"GRANT ALL ON shop.* TO {USER}@'%'")


class MariaDbHost(MySqlHost):
    """MariaDB."""

    title = "MariaDB"
    powers = MySqlHost.powers | {Power.SUCCESSION}

    def _make(self) -> MariaDbServer:
        return MariaDbServer(settings=standbys.MARIADB)

    def replicate(self) -> MariaDbServer:
        assert isinstance(self.server, MariaDbServer)
        return standbys.mariadb_standby(self.server)

    def succeed(self, successor: Server, *, crash: bool = False) -> None:
        assert not crash, "an asynchronous replica may lack what was committed"
        assert isinstance(successor, MariaDbServer)
        assert isinstance(self.server, MariaDbServer)
        self.name.take()
        time.sleep(SETTLING_SECONDS)  # for what the application has begun
        standbys.ask(self.server, "SET GLOBAL read_only = 1")
        standbys.wait_for_mariadb(self.server, successor)
        standbys.promote_mariadb(successor)
        self._hand_over(successor)


class SqliteHost(Host):
    """SQLite: a file, which only one transaction can change at a time."""

    title = "SQLite"
    lanes = 2

    def _start(self) -> None:
        self.database = Sqlite(str(self.folder / "shop.db"))

    def version(self) -> str:
        return sqlite3.sqlite_version

    def source(self, name: str, port: int) -> str:
        return self.database.named(name)


HOSTS: dict[str, type[Host]] = {
    "postgres": PostgresHost,
    "mysql": MySqlHost,
    "mariadb": MariaDbHost,
    "sqlite": SqliteHost,
}
