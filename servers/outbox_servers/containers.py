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

from outbox_servers.services.external import ExternalKafka, ExternalMySql, ExternalPostgres
from outbox_servers.services.process import ServiceError

POSTGRES_IMAGE = "postgres:17"
MYSQL_IMAGE = "mysql:9"
MARIADB_IMAGE = "mariadb:11"
KAFKA_IMAGE = "confluentinc/cp-kafka:7.9.0"

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


START: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "postgres": postgres,
    "mysql": mysql,
    "mariadb": mariadb,
    "kafka": kafka,
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
