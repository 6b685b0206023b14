"""Services in containers, by testcontainers."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from docker.errors import DockerException  # type: ignore[import-untyped]  # one name needs no stubs
from testcontainers.community.kafka import KafkaContainer
from testcontainers.community.postgres import PostgresContainer

from outbox_testkit.services.external import ExternalKafka, ExternalPostgres
from outbox_testkit.services.process import ServiceError

if TYPE_CHECKING:
    from collections.abc import Iterator

POSTGRES_IMAGE = "postgres:17"
KAFKA_IMAGE = "confluentinc/cp-kafka:7.9.0"

# The image's settings ask for the three brokers of a production cluster.
_ONE_BROKER = {
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS": "1000",
}


@contextmanager
def postgres() -> Iterator[ExternalPostgres]:
    """Yields a PostgreSQL server in a container, which is removed afterwards.

    Raises:
        ServiceError: Docker is not there, or could not start the image.
    """
    try:
        container = PostgresContainer(POSTGRES_IMAGE).start()
    except DockerException as error:
        raise ServiceError(f"Docker could not start {POSTGRES_IMAGE}: {error}") from error
    try:
        yield ExternalPostgres(container.get_connection_url(driver=None))
    finally:
        container.stop()


@contextmanager
def kafka() -> Iterator[ExternalKafka]:
    """Yields a Kafka broker in a container, which is removed afterwards.

    Raises:
        ServiceError: Docker is not there, or could not start the image.
    """
    try:
        container = KafkaContainer(KAFKA_IMAGE).with_kraft()
        for name, value in _ONE_BROKER.items():
            container.with_env(name, value)
        container.start()
    except DockerException as error:
        raise ServiceError(f"Docker could not start {KAFKA_IMAGE}: {error}") from error
    try:
        yield ExternalKafka(container.get_bootstrap_server())
    finally:
        container.stop()
