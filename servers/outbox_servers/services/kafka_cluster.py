"""A real Kafka cluster of several brokers."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from outbox_servers.services.external import Kafka
from outbox_servers.services.kafka import KafkaBroker, Node
from outbox_servers.services.kafka_home import new_id
from outbox_servers.services.process import POLL_INTERVAL, ServiceError, free_port

if TYPE_CHECKING:
    from collections.abc import Mapping

_REPLICATED = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
}


class KafkaCluster(Kafka):
    """Three brokers, each of which is a controller too; every partition has a copy on all of them.

    A broker takes writes while two are in sync. A context manager like a broker: entering starts all of them.

    Args:
        properties: Server properties of all brokers, in addition to or instead of those set here.
        options: Other options of each :class:`KafkaBroker`.

    Attributes:
        brokers: The brokers, to stop, kill and start one by one.
    """

    def __init__(self, *, properties: Mapping[str, str] | None = None, **options: Any) -> None:
        cluster, controllers = new_id(), {number: free_port() for number in (1, 2, 3)}
        self.brokers = [
            KafkaBroker(
                properties={**_REPLICATED, **(properties or {})},
                node=Node(number, cluster, controllers),
                **options,
            )
            for number in controllers
        ]

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    def wait_until_in_sync(self, timeout: float = 60.0) -> None:
        """Waits until every partition has all of its copies in sync.

        Raises:
            ServiceError: That is not so in time.
        """
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            try:
                topics = admin.list_topics(timeout=5).topics.values()
            except KafkaException:
                continue  # it has asked a broker that is not back yet
            partitions = [each for topic in topics for each in topic.partitions.values()]
            if all(len(each.isrs) == len(each.replicas) for each in partitions):
                return
            time.sleep(POLL_INTERVAL)
        raise ServiceError(f"Kafka's copies were not in sync after {timeout:g} seconds.")

    def close(self) -> None:
        """Stops all brokers and deletes their folders. Idempotent."""
        for broker in self.brokers:
            broker.kill()  # one after another would wait for each other in vain
        for broker in self.brokers:
            broker.close()

    def __enter__(self) -> Self:
        try:
            # None is ready before a majority of the controllers is.
            with ThreadPoolExecutor(len(self.brokers)) as pool:
                list(pool.map(KafkaBroker.start, self.brokers))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
