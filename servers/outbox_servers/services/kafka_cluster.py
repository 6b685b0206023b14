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
    from collections.abc import Mapping, Sequence
    from pathlib import Path

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
        folder: The folder with a folder for each broker, which stay; by default temporary ones.
        properties: Server properties of all brokers, in addition to or instead of those set here.
        proxy_ports: A ``proxy_port`` for each broker; see :class:`KafkaBroker`.
        options: Other options of each :class:`KafkaBroker`.

    Attributes:
        brokers: The brokers, to stop, kill and start one by one.
    """

    def __init__(
        self,
        *,
        folder: Path | None = None,
        properties: Mapping[str, str] | None = None,
        proxy_ports: Sequence[int] | None = None,
        **options: Any,
    ) -> None:
        cluster, controllers = new_id(), {number: free_port() for number in (1, 2, 3)}
        self.brokers = [
            KafkaBroker(
                folder=folder / f"broker-{number}" if folder else None,
                properties={**_REPLICATED, **(properties or {})},
                proxy_port=proxy_ports[number - 1] if proxy_ports else None,
                node=Node(number, cluster, controllers),
                **options,
            )
            for number in controllers
        ]
        self._by_number = dict(zip(controllers, self.brokers, strict=True))

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    def start(self) -> None:
        """Starts the brokers that do not run, at the same time, and continues those that are frozen.

        Raises:
            ServiceError: One of them ended, or was not ready in time.
        """
        for broker in self.brokers:
            if broker.running:
                broker.resume()
        # None is ready before a majority of the controllers is.
        with ThreadPoolExecutor(len(self.brokers)) as pool:
            list(pool.map(KafkaBroker.start, self.brokers))

    def kill(self) -> None:
        """Kills all brokers with SIGKILL; their data stay. Idempotent."""
        for broker in self.brokers:
            broker.kill()

    def leader(self, topic: str, partition: int) -> KafkaBroker | None:
        """Returns the broker that leads a partition; ``None`` if none does, or there is no such partition."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        found = admin.list_topics(timeout=30).topics.get(topic)
        number = found.partitions[partition].leader if found and partition in found.partitions else -1
        return self._by_number.get(number)

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
        self.kill()  # stopped one after another, they would wait for each other in vain
        for broker in self.brokers:
            broker.close()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
