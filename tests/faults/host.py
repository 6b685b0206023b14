"""Where a shop's database runs, and what a fault can do to it."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit

from outbox_servers.services import MariaDbServer, MySqlServer, PostgresServer
from psycopg import sql
from psycopg.conninfo import make_conninfo

from ..databases import Database, MySql, Postgres, Sqlite  # noqa: TID252 - pytest gives tests no absolute name
from .disk import SmallDisk
from .proxy import MYSQL, POSTGRES, Speech

USER = "harvester"
_GRANTS = f"""
GRANT ALL ON ALL TABLES IN SCHEMA public TO {USER};
GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {USER};
GRANT ALL ON SCHEMA public TO {USER};
"""


class Power(Enum):
    """What a host can do; a fault requires powers, and never checks for the name of a database."""

    SERVER = "its server can be killed and started again, and is reached over TCP"
    RULES = "its modes, accounts and disk can be changed while it runs"
    EVICTION = "it ends the transaction of a process that is frozen"
    TOUCHES = "it records which connection changes how many rows of the outbox"


class Host(ABC):
    """A database for one shop; a context manager that starts and ends what it needs.

    Args:
        folder: A folder for its files.
        password: The password of the harvesters' account, if the database has accounts.

    Attributes:
        title: Its name, for people.
        powers: What it can do.
        lanes: The number of lanes for it.
        speech: What a proxy must know of its protocol.
        server: Its server, if it has one.
        database: The shop's database.
    """

    title: ClassVar[str]
    powers: ClassVar[frozenset[Power]] = frozenset()
    lanes: ClassVar[int] = 4
    speech: ClassVar[Speech] = POSTGRES
    server: PostgresServer | MySqlServer | MariaDbServer
    database: Database

    def __init__(self, folder: Path, password: str) -> None:
        self.folder = folder
        self.password = password
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        self._stack.callback(self.database.fence.close)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @abstractmethod
    def _start(self) -> None: ...

    @abstractmethod
    def version(self) -> str:
        """Returns the version of the database."""

    @abstractmethod
    def source(self, name: str, port: int) -> str:
        """Returns the data source of a harvester with that name, through that port."""

    def admit(self) -> None:  # noqa: B027 - a database may have no accounts
        """Creates the harvesters' account, and grants it access to the shop's tables, which must exist."""

    def doing(self) -> str:
        """Returns the server's report of its sessions and locks, for the analysis of a failed round."""
        return ""

    def restore(self) -> None:
        """Undoes what a failed fault has left behind."""
        if Power.SERVER in self.powers:
            self.server.start()


class PostgresHost(Host):
    """PostgreSQL, with its table on a disk of its own."""

    title = "PostgreSQL"
    powers = frozenset(Power)
    server: PostgresServer
    database: Postgres

    def _start(self) -> None:
        # Exits only after the server has ended.
        self.disk = self._stack.enter_context(SmallDisk())
        self.server = self._stack.enter_context(PostgresServer())
        self.database = Postgres(self.server.create_database("shop"))

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
        super().restore()
        valid = sql.SQL("ALTER ROLE {} PASSWORD {} VALID UNTIL 'infinity'")
        with self.administrating() as connection:
            connection.execute("ALTER SYSTEM RESET default_transaction_read_only")
            connection.execute("SELECT pg_reload_conf()")
            connection.execute(valid.format(sql.Identifier(USER), self.password))

    @contextmanager
    def administrating(self) -> Iterator[Any]:
        """Connects as the superuser, directly, in autocommit mode, and allowed to write."""
        with self.database.connect_at_once() as connection:
            connection.execute("SET default_transaction_read_only = off")
            yield connection


class MySqlHost(Host):
    """MySQL."""

    title = "MySQL"
    powers = frozenset({Power.SERVER, Power.EVICTION})
    speech = MYSQL
    server: MySqlServer | MariaDbServer

    def _start(self) -> None:
        self.server = self._make()
        self._stack.enter_context(self.server)
        self.database = MySql(self.server.create_database("shop"))

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

    def admit(self) -> None:
        with self.server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE USER {USER}@'%%' IDENTIFIED BY %s", [self.password])
            cursor.execute(f"GRANT ALL ON shop.* TO {USER}@'%'")


class MariaDbHost(MySqlHost):
    """MariaDB."""

    title = "MariaDB"

    def _make(self) -> MariaDbServer:
        return MariaDbServer()


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
