"""The brokers of a site: one, or three with copies of everything."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from outbox_servers.services import KafkaBroker, KafkaCluster
from outbox_servers.services.kafka_home import KAFKA_VERSION

from ..shop import PARTITIONS  # noqa: TID252 - pytest gives tests no absolute name
from .late_requests import LateRequests
from .proxy import Observer, Proxy, commits

BROKER_SESSION_SECONDS = 9.0
"""Kafka's default: a broker that is back earlier finds itself the leader that it was."""
_SESSION = "broker.session.timeout.ms"
_DEFAULT_SESSION = {
    _SESSION: str(round(BROKER_SESSION_SECONDS * 1000)),
    "broker.heartbeat.interval.ms": "2000",
}
_SLOW_COPIES = {
    # A copy is answered when there are so many bytes, which never come, or after this time. So a leader needs
    # twice this time at most to acknowledge a request. It answers those of a connection one after another,
    # each for one partition: with more partitions, or a longer time, requests time out.
    "replica.fetch.min.bytes": str(10 << 20),
    "replica.fetch.wait.max.ms": "200",
}


@dataclass(frozen=True, eq=False)
class Setup:
    """What a fault needs of Kafka, and of the load on it.

    Attributes:
        title: What it is, in a few words.
        copies: The number of brokers, and of the copies of each partition.
        partitions: Of the shop's topic.
        most_lanes: The lanes at most: with fewer, a transaction has more records.
        pause: The pause in seconds between two transactions of a writer, so that the fault is measured and
            not the machine.
        properties: The brokers' properties.
        version: Kafka's version, if not that of the tests.
    """

    title: str
    copies: int = 1
    partitions: int = PARTITIONS
    most_lanes: int = 4
    pause: float = 0.06
    properties: Mapping[str, str] = field(default_factory=dict)
    version: str = KAFKA_VERSION

    def with_session(self, seconds: float) -> Setup:
        """Returns the same with another session of the brokers, if there are several."""
        if _SESSION not in self.properties:
            return self
        return replace(self, properties={**self.properties, _SESSION: str(round(seconds * 1000))})


ONE = Setup("one broker")
THREE = Setup("three brokers", 3, 12, most_lanes=2, pause=0.02, properties=_DEFAULT_SESSION)
LAGGING = Setup(
    "three brokers with slow copies",
    3,
    6,
    most_lanes=2,
    pause=0.5,
    properties={**_DEFAULT_SESSION, **_SLOW_COPIES},
)
SPREAD = Setup("one broker with 12 partitions", 1, 12)
OLD = Setup("one broker of Kafka 3.9 with 12 partitions", 1, 12, version="3.9.1")
UNVERIFIED = Setup(
    "one broker that verifies no transaction, with 12 partitions",
    1,
    12,
    properties={"transaction.partition.verification.enable": "false"},
)
SETUPS = (ONE, THREE, LAGGING, SPREAD, OLD, UNVERIFIED)


class Gate:
    """Holds back requests to commit a transaction while it is closed.

    Attributes:
        held: How many requests it has held back.
    """

    def __init__(self) -> None:
        self.held = 0
        self._open = Event()
        self._open.set()

    def watch(self) -> Observer:
        """Returns what receives the data of one connection, in the thread that forwards it."""

        def see(data: bytes, from_client: bool) -> None:
            if from_client and not self._open.is_set() and commits(data):
                self.held += 1
                self._open.wait()

        return see

    def open(self) -> None:
        """Lets all requests go."""
        self._open.set()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Is closed until the block ends, or until :meth:`open`."""
        self.held = 0
        self._open.clear()
        try:
            yield
        finally:
            self.open()


class Brokers:
    """The brokers, each behind a proxy; a context manager.

    Args:
        setup: Which brokers.
        folder: The folder for the data and logs of several.

    Attributes:
        kafka: The broker, or the cluster.
        proxies: The proxy of each broker, which harvesters are connected to.
        gate: Before all brokers.
        late: Keeps requests to all brokers.
    """

    def __init__(self, setup: Setup, folder: Path) -> None:
        self.setup = setup
        self.gate, self.late = Gate(), LateRequests()
        self.folder = folder / "brokers"
        self._stack = ExitStack()
        self.proxies = [self._proxy(number) for number in range(setup.copies)]
        ports = [proxy.port for proxy in self.proxies]
        properties = setup.properties
        self.kafka: KafkaBroker | KafkaCluster = (
            KafkaCluster(folder=self.folder, properties=properties, proxy_ports=ports, version=setup.version)
            if setup.copies > 1
            else KafkaBroker(properties=properties, proxy_port=ports[0], version=setup.version)
        )

    def _proxy(self, number: int) -> Proxy:
        target: Callable[[], int] = lambda: self.each[number].proxied_port  # noqa: E731 - a closure
        proxy = Proxy(target, observe=lambda: _both(self.gate.watch(), self.late.watch(target)))
        self._stack.callback(proxy.close)
        return proxy

    def __enter__(self) -> Self:
        try:
            self._stack.enter_context(self.kafka)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.gate.open()
        self._stack.close()

    @property
    def each(self) -> list[KafkaBroker]:
        """The brokers, one by one."""
        return self.kafka.brokers if isinstance(self.kafka, KafkaCluster) else [self.kafka]

    @property
    def cluster(self) -> KafkaCluster:
        """The brokers, if they are several."""
        assert isinstance(self.kafka, KafkaCluster)
        return self.kafka

    @property
    def bootstrap(self) -> str:
        """The addresses for harvesters: those of the proxies."""
        return ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.proxies)

    def leader(self, topic: str, partition: int, timeout: float = 60.0) -> KafkaBroker | None:
        """Returns the broker that leads a partition of a cluster, once one does; ``None`` without a topic."""
        deadline = time.monotonic() + timeout
        while True:
            with suppress(KafkaException):
                return self.cluster.leader(topic, partition)
            assert time.monotonic() < deadline, f"no broker answers within {timeout:g} s"

    def settle(self) -> None:
        """Waits until all copies are in sync."""
        if isinstance(self.kafka, KafkaCluster):
            self.kafka.wait_until_in_sync()

    def restore(self) -> None:
        """Undoes what a failed fault has left behind."""
        self.gate.open()
        self.late.forget()
        for proxy in self.proxies:
            proxy.delay = 0.0
            proxy.speak()
        self.kafka.start()


def _both(first: Observer, second: Observer) -> Observer:
    def see(data: bytes, from_client: bool) -> None:
        first(data, from_client)
        second(data, from_client)

    return see
