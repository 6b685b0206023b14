"""A real Kafka broker as a child process."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from outbox_servers.services.cache import Progress, logged
from outbox_servers.services.external import Kafka
from outbox_servers.services.java import Java, find_java
from outbox_servers.services.kafka_home import (
    KAFKA_VERSION,
    ClassArchive,
    class_path,
    cluster_id,
    kafka_home,
    new_id,
    write_properties,
    write_storage,
)
from outbox_servers.services.process import ServerProcess, ServiceError, free_port
from outbox_servers.services.service import Service

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

QUICK_JVM = ("-Xmx512m", "-Xms256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Options for a fast start with little memory; benchmarks use other options."""

_SETTINGS = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    # One broker has the only copy of everything.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # Groups form without delay, and a test may use a session of a second.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    # After a crash the controller accepts the new process only after the session of the old one.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # Little memory, little disk.
    "log.segment.bytes": str(64 << 20),
    "log.index.size.max.bytes": str(1 << 20),
    "log.cleaner.dedupe.buffer.size": str(4 << 20),
    "num.network.threads": "2",
    "num.io.threads": "4",
}


@dataclass(frozen=True)
class Node:
    """A broker's place in its cluster.

    Attributes:
        number: Its number, from 1.
        cluster: The cluster's id.
        controllers: Number of each broker → the port of its controller.
    """

    number: int
    cluster: str
    controllers: Mapping[int, int]


class KafkaBroker(Service, Kafka):
    """A Kafka broker (KRaft) that listens on 127.0.0.1, for tests and demonstrations; a cluster by itself.

    Its jars are fetched from Maven Central once and kept in the cache folder. It keeps its port and its data
    when it is stopped or killed and started again. Acknowledged records survive ``kill``, but not a power
    cut, because Kafka leaves writing to the operating system.

    Args:
        folder: The folder of data and log; by default a new temporary folder, deleted at the end.
        properties: Server properties, in addition to or instead of those set here.
        auto_create_topics: Whether the first use of a topic creates it.
        proxy_port: A port of 127.0.0.1 where the caller forwards connections to ``proxied_port``. Clients of
            this port get it as the broker's address.
        jvm_options: Java options for memory and speed.
        java: The Java that runs it; found by ``find_java`` if not given.
        version: Kafka's version, 3.9 or newer.
        node: Its place in a cluster of several; see :class:`KafkaCluster`.
        progress: Receives lines of text while jars are fetched and the broker starts.
    """

    title: ClassVar[str] = "Kafka"
    port_taken: ClassVar[str] = "BindException"

    def __init__(
        self,
        *,
        folder: Path | None = None,
        properties: Mapping[str, str] | None = None,
        auto_create_topics: bool = True,
        proxy_port: int | None = None,
        jvm_options: Sequence[str] = QUICK_JVM,
        java: Java | None = None,
        version: str = KAFKA_VERSION,
        node: Node | None = None,
        progress: Progress = logged,
    ) -> None:
        super().__init__(folder)
        self._alone = node is None
        self._node = node or Node(1, new_id(), {})
        automatic = {"auto.create.topics.enable": str(auto_create_topics).lower()}
        self._properties = {**_SETTINGS, **automatic, **(properties or {})}
        self._proxy_port = proxy_port
        self._jvm_options = tuple(jvm_options)
        self._java = java
        self._version = version
        self._progress = progress
        self._proxied_port: int | None = None
        self._archive: ClassArchive | None = None

    @property
    def proxied_port(self) -> int:
        """The TCP port for connections from the caller's proxy.

        Raises:
            ServiceError: The broker was never started, or has no ``proxy_port``.
        """
        if self._proxied_port is None:
            raise ServiceError("Kafka has no proxy; pass a proxy_port and start() it first.")
        return self._proxied_port

    @property
    def bootstrap(self) -> str:
        """The address for ``bootstrap.servers``.

        Raises:
            ServiceError: The broker was never started.
        """
        return f"127.0.0.1:{self.port}"

    def stop(self) -> None:
        """Stops the broker in order; the data stays. Idempotent."""
        super().stop()
        if self._archive:
            self._archive.keep()

    @property
    def _controller_port(self) -> int:
        return self._node.controllers[self._node.number]

    def _choose_ports(self) -> None:
        super()._choose_ports()
        if self._alone:
            self._node = replace(self._node, controllers={self._node.number: free_port()})
        self._proxied_port = free_port() if self._proxy_port is not None else None

    def _launch(self) -> ServerProcess:
        java = self._java = self._java or find_java()
        home = kafka_home(java, self._progress, self._version)
        self._archive = ClassArchive(java, home, self.folder)
        self._progress(f"Starting Kafka on {self.bootstrap}")
        command = [str(java.executable), *self._jvm_options, *self._archive.options()]
        command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", class_path(home)]
        return ServerProcess(
            self.title,
            [*command, "kafka.Kafka", str(self._prepare(home))],
            log=self.log,
            environment={name: value for name, value in os.environ.items() if name != "CLASSPATH"},
            orphan_folder=self._orphan_folder,
        )

    def _prepare(self, home: Path) -> Path:
        """Creates the storage folder, if it is missing, and the file of settings; returns the file's path."""
        node = self._node
        data = self.folder / "data"
        if not data.exists():
            write_storage(home, data, node.number, node.cluster)
        controllers = {number: f"127.0.0.1:{port}" for number, port in node.controllers.items()}
        listeners, advertised = {"PLAINTEXT": self.bootstrap}, {"PLAINTEXT": self.bootstrap}
        if self._proxy_port is not None:
            listeners["PROXIED"] = f"127.0.0.1:{self.proxied_port}"
            advertised["PROXIED"] = f"127.0.0.1:{self._proxy_port}"
        addresses = {
            "log.dirs": str(data),
            "node.id": str(node.number),
            "controller.quorum.voters": ",".join(f"{each}@{at}" for each, at in controllers.items()),
            "listeners": _addresses({**listeners, "CONTROLLER": f"127.0.0.1:{self._controller_port}"}),
            "advertised.listeners": _addresses(advertised),
            "listener.security.protocol.map": ",".join(
                f"{name}:PLAINTEXT" for name in ("CONTROLLER", *listeners)
            ),
        }
        return write_properties(self.folder / "server.properties", {**addresses, **self._properties})

    def _ready(self) -> bool:
        # A refused connection is cheaper than a client's timeout, and is not logged.
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", self.port)) != 0:
                return False
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        try:
            metadata = client.list_topics(timeout=5)
        except KafkaException:
            return False
        if metadata.cluster_id != cluster_id(self.folder / "data"):
            return False  # Another broker has taken the port; this one is about to end.
        partitions = [part for topic in metadata.topics.values() for part in topic.partitions.values()]
        return bool(metadata.brokers) and all(part.leader >= 0 for part in partitions)

    def _shut_down(self) -> None:
        # The data of a temporary broker is not needed again, unless this run creates the class archive.
        if self._temporary and not (self._archive and self._archive.pending):
            self.kill()
        else:
            self.stop()


def _addresses(listeners: Mapping[str, str]) -> str:
    return ",".join(f"{name}://{address}" for name, address in listeners.items())
