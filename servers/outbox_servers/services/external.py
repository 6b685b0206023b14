"""What tests need of a PostgreSQL, MySQL, MariaDB, Kafka or etcd server, even if others started it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import psycopg
import pymysql
from confluent_kafka.admin import AdminClient
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pymysql.constants import ER


class Postgres(ABC):
    """A PostgreSQL server in which databases may be created and dropped."""

    @property
    @abstractmethod
    def dsn(self) -> str:
        """The libpq connection string of an account that may create databases; may contain a password."""

    def dsn_of(self, database: str) -> str:
        """Returns the same account's libpq connection string for another database."""
        return make_conninfo(self.dsn, dbname=database)

    def create_database(self, name: str) -> str:
        """Creates an empty database and returns its connection string."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.dsn_of(name)

    def drop_database(self, name: str) -> None:
        """Drops a database and ends the sessions in it; does nothing if it does not exist."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(
                sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
            )


class MySql(ABC):
    """A MySQL or MariaDB server in which databases may be created and dropped."""

    @property
    @abstractmethod
    def dsn(self) -> str:
        """The address of an account that may create databases: ``mysql://user:password@host:port/``."""

    def dsn_of(self, database: str) -> str:
        """Returns the same account's address of a database: ``mysql://user:password@host:port/database``."""
        return urlsplit(self.dsn)._replace(path=f"/{quote(database, safe='')}").geturl()

    def connect(self, **options: Any) -> pymysql.Connection[Any]:
        """Returns a new connection to the server; see ``connect_mysql``."""
        return connect_mysql(self.dsn, **options)

    def create_database(self, name: str) -> str:
        """Creates an empty database and returns its address."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {_quoted(name)}")
        return self.dsn_of(name)

    def drop_database(self, name: str) -> None:
        """Drops a database and ends the sessions in it; does nothing if it does not exist."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT id FROM information_schema.processlist WHERE db = %s", [name])
            for (session,) in cursor.fetchall():
                _end(cursor, session)
            cursor.execute(f"DROP DATABASE IF EXISTS {_quoted(name)}")


def connect_mysql(dsn: str, **options: Any) -> pymysql.Connection[Any]:
    """Returns a new connection by PyMySQL to an address ``mysql://user:password@host:port/database``.

    Args:
        dsn: The address; its query may have options ``ssl_...``.
        options: Options of ``pymysql.connect``, which override those of the address.
    """
    address = urlsplit(dsn)
    given: dict[str, Any] = {
        name: value for name, value in parse_qsl(address.query) if name.startswith("ssl_")
    }
    given |= {
        "host": address.hostname,
        "port": address.port or 3306,
        "user": unquote(address.username or ""),
        "password": unquote(address.password or ""),
        "database": unquote(address.path.strip("/")) or None,
        "charset": "utf8mb4",
    }
    return pymysql.connect(**(given | options))


def _end(cursor: pymysql.cursors.Cursor, session: int) -> None:
    try:
        cursor.execute("KILL %s", [session])
    except pymysql.MySQLError as error:
        if error.args[0] != ER.NO_SUCH_THREAD:  # It has ended by itself.
            raise


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


class Kafka(ABC):
    """A Kafka cluster in which topics may be created."""

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """The address for ``bootstrap.servers``."""

    def admin(self) -> AdminClient:
        """Returns a new admin client."""
        return AdminClient({"bootstrap.servers": self.bootstrap})


class Etcd(ABC):
    """An etcd cluster."""

    @property
    @abstractmethod
    def endpoint(self) -> str:
        """The address of a member, ``host:port``."""


class ZooKeeper(ABC):
    """A ZooKeeper in which nodes may be created."""

    @property
    @abstractmethod
    def hosts(self) -> str:
        """The addresses of its servers, ``host:port`` with commas in between."""


class ExternalPostgres(Postgres):
    """A server that is not ours, given by its connection string."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    @property
    def dsn(self) -> str:
        """The connection string as it was given."""
        return self._dsn


class ExternalMySql(MySql):
    """A MySQL or MariaDB server that is not ours, given by its address."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    @property
    def dsn(self) -> str:
        """The address as it was given."""
        return self._dsn


class ExternalKafka(Kafka):
    """A cluster that is not ours, given by its address."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    @property
    def bootstrap(self) -> str:
        """The address as it was given."""
        return self._bootstrap


class ExternalEtcd(Etcd):
    """A cluster that is not ours, given by the address of a member."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint

    @property
    def endpoint(self) -> str:
        """The address as it was given."""
        return self._endpoint


class ExternalZooKeeper(ZooKeeper):
    """Servers that are not ours, given by their addresses."""

    def __init__(self, hosts: str) -> None:
        self._hosts = hosts

    @property
    def hosts(self) -> str:
        """The addresses as they were given."""
        return self._hosts
