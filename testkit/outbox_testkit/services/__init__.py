"""Real servers as child processes, for tests, demonstrations and benchmarks; imports no test library."""

from outbox_testkit.services.java import Java, find_java
from outbox_testkit.services.kafka import KafkaBroker
from outbox_testkit.services.postgres import PostgresServer
from outbox_testkit.services.process import Service, ServiceError

__all__ = ["Java", "KafkaBroker", "PostgresServer", "Service", "ServiceError", "find_java"]
