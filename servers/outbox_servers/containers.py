"""Services in Docker containers, with testcontainers."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, TypeVar

from docker.errors import DockerException  # type: ignore[import-untyped]  # one name needs no stubs
from testcontainers.community.kafka import KafkaContainer
from testcontainers.community.mysql import MySqlContainer
from testcontainers.community.postgres import PostgresContainer
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from outbox_servers.services.external import (
    ExternalEtcd,
    ExternalKafka,
    ExternalMySql,
    ExternalPostgres,
    ExternalZooKeeper,
)
from outbox_servers.services.process import ServiceError

POSTGRES_IMAGE = "postgres:17"
MYSQL_IMAGE = "mysql:9"
MARIADB_IMAGE = "mariadb:11"
ETCD_IMAGE = "quay.io/coreos/etcd:v3.5.17"
KAFKA_IMAGE = "confluentinc/cp-kafka:7.9.0"
ZOOKEEPER_IMAGE = "zookeeper:3.9"

_ZOOKEEPER_PORT = 2181

C = TypeVar("C", bound=DockerContainer)

# The image's default settings need the three brokers of a production cluster.
_ONE_BROKER = {
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS": "1000",
}


@contextmanager
def postgres() -> Iterator[ExternalPostgres]:
    """Yields a PostgreSQL server in a container, which is removed afterwards.

    Raises:
        ServiceError: Docker is not available, or could not start the image.
    """
    with _running(POSTGRES_IMAGE, lambda: PostgresContainer(POSTGRES_IMAGE)) as container:
        yield ExternalPostgres(container.get_connection_url(driver=None))


@contextmanager
def mysql(image: str = MYSQL_IMAGE) -> Iterator[ExternalMySql]:
    """Yields a MySQL server in a container, which is removed afterwards.

    Args:
        image: MySQL's image, or one with the same environment variables, such as MariaDB's.

    Raises:
        ServiceError: Docker is not available, or could not start the image.
    """
    password = secrets.token_hex(16)
    with _running(image, lambda: MySqlContainer(image, username="root", password=password)) as container:
        yield ExternalMySql(container.get_connection_url())


@contextmanager
def mariadb() -> Iterator[ExternalMySql]:
    """Yields a MariaDB server in a container, which is removed afterwards.

    Raises:
        ServiceError: Docker is not available, or could not start the image.
    """
    with mysql(MARIADB_IMAGE) as server:
        yield server


@contextmanager
def kafka() -> Iterator[ExternalKafka]:
    """Yields a Kafka broker in a container, which is removed afterwards.

    Raises:
        ServiceError: Docker is not available, or could not start the image.
    """

    def make() -> KafkaContainer:
        container = KafkaContainer(KAFKA_IMAGE).with_kraft()
        for name, value in _ONE_BROKER.items():
            container.with_env(name, value)
        return container

    with _running(KAFKA_IMAGE, make) as container:
        yield ExternalKafka(container.get_bootstrap_server())


@contextmanager
def etcd() -> Iterator[ExternalEtcd]:
    """Yields an etcd server in a container, which is removed afterwards.

    Raises:
        ServiceError: Docker is not available, or could not start the image.
    """
    options = "--listen-client-urls=http://0.0.0.0:2379 --advertise-client-urls=http://127.0.0.1:2379"

    def make() -> DockerContainer:
        container = DockerContainer(ETCD_IMAGE).with_exposed_ports(2379).with_command(f"etcd {options}")
        return container.waiting_for(LogMessageWaitStrategy("ready to serve client requests"))

    with _running(ETCD_IMAGE, make) as container:
        yield ExternalEtcd(f"{container.get_container_host_ip()}:{container.get_exposed_port(2379)}")


@contextmanager
def zookeeper() -> Iterator[ExternalZooKeeper]:
    """Yields a ZooKeeper server in a container, which is removed afterwards.

    Raises:
        ServiceError: Docker is not available, or could not start the image.
    """

    def make() -> DockerContainer:
        container = DockerContainer(ZOOKEEPER_IMAGE).with_exposed_ports(_ZOOKEEPER_PORT)
        container.with_env("ZOO_TICK_TIME", "100").with_env("ZOO_MAX_SESSION_TIMEOUT", "60000")
        return container.waiting_for(LogMessageWaitStrategy("binding to port"))

    with _running(ZOOKEEPER_IMAGE, make) as container:
        host, port = container.get_container_host_ip(), container.get_exposed_port(_ZOOKEEPER_PORT)
        yield ExternalZooKeeper(f"{host}:{port}")


START: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "postgres": postgres,
    "mysql": mysql,
    "mariadb": mariadb,
    "kafka": kafka,
    "etcd": etcd,
    "zookeeper": zookeeper,
}
"""The services by name."""


@contextmanager
def _running(image: str, make: Callable[[], C]) -> Iterator[C]:
    """Starts the container that ``make`` returns, and removes it afterwards; ``make`` needs Docker too."""
    with ExitStack() as stack:
        try:
            container = make()
            stack.callback(container.stop)
            container.start()
        except (DockerException, TimeoutError, RuntimeError) as error:
            # The error of a container that ends, or is not ready in time, has its output.
            raise ServiceError(f"Docker could not start {image}: {error}") from error
        yield container
