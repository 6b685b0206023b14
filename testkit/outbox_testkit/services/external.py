"""What a test may ask of any PostgreSQL or Kafka, whoever started it."""

from __future__ import annotations

from abc import ABC, abstractmethod

import psycopg
from confluent_kafka.admin import AdminClient
from psycopg import sql
from psycopg.conninfo import make_conninfo


class Postgres(ABC):
    """A PostgreSQL server in which databases may be created and dropped."""

    @property
    @abstractmethod
    def dsn(self) -> str:
        """The libpq connection string of an account that may create databases; may carry a password."""

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


class Kafka(ABC):
    """A Kafka cluster in which topics may be created."""

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """The address for ``bootstrap.servers``."""

    def admin(self) -> AdminClient:
        """Returns a new admin client."""
        return AdminClient({"bootstrap.servers": self.bootstrap})


class ExternalPostgres(Postgres):
    """A server that somebody else runs, known by its connection string."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    @property
    def dsn(self) -> str:
        """The connection string as it was given."""
        return self._dsn


class ExternalKafka(Kafka):
    """A cluster that somebody else runs, known by its address."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    @property
    def bootstrap(self) -> str:
        """The address as it was given."""
        return self._bootstrap
