"""The electors that the benchmarks compare, each with its service and its session."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cached_property, partial
from typing import Any, ClassVar
from uuid import uuid4

from outbox_api import Lease, Seam, find
from outbox_core.builtin import LeaseOptions
from outbox_etcd import EtcdOptions
from outbox_kubernetes import KubernetesOptions
from outbox_neli_kafka import NeliOptions
from outbox_servers.services import EtcdServer, KafkaBroker, PostgresServer, ZooKeeperServer
from outbox_servers.services.kubernetes import KubeApiServer
from outbox_servers.services.service import Service
from outbox_testkit.conformance import ElectorUnderTest
from outbox_zookeeper import ZooKeeperOptions
from psycopg.conninfo import make_conninfo


class Servers(ExitStack):
    """Servers, each started when it is first asked for, and all removed at the end.

    Args:
        kafka_proxy_port: A port through which clients may reach the broker as well.
    """

    def __init__(self, kafka_proxy_port: int | None = None) -> None:
        super().__init__()
        self._kafka_proxy_port = kafka_proxy_port

    @cached_property
    def postgres(self) -> PostgresServer:
        """The database."""
        return self.enter_context(PostgresServer())

    @cached_property
    def kafka(self) -> KafkaBroker:
        """The broker."""
        return self.enter_context(KafkaBroker(proxy_port=self._kafka_proxy_port))

    @cached_property
    def etcd(self) -> EtcdServer:
        """etcd, one member."""
        return self.enter_context(EtcdServer())

    @cached_property
    def zookeeper(self) -> ZooKeeperServer:
        """ZooKeeper, one server."""
        return self.enter_context(ZooKeeperServer())

    @cached_property
    def kubernetes(self) -> KubeApiServer:
        """An API server of Kubernetes."""
        return self.enter_context(KubeApiServer())


class BenchElector(ABC):
    """An elector on the servers of a benchmark.

    Args:
        servers: The servers.
        port: A port of this machine that leads to its service, instead of the service's own.

    Attributes:
        driver: Its entry-point name.
        session: Seconds after which a dead leader is replaced: a short session that its service permits.
    """

    driver: ClassVar[str]
    session: ClassVar[float]

    def __init__(self, servers: Servers, port: int | None = None) -> None:
        self.servers = servers
        self._port = port

    def address(self, own: str) -> str:
        """Returns where the service is, given its own address."""
        return own if self._port is None else f"127.0.0.1:{self._port}"

    @property
    @abstractmethod
    def service(self) -> Service:
        """The service that it rests on; starts it."""

    @abstractmethod
    def options(self, election: str) -> Any:
        """Returns the driver's options for an election."""

    def settings(self, election: str) -> Mapping[str, Any]:
        """Returns the same as YAML has it, below ``harvest: elector:``."""
        named = {"driver": self.driver, "sessionTimeout": f"{self.session:g}s"}
        return named if self.driver == DatabaseLease.driver else {**named, "leaderGroupID": election}

    def election(self) -> ElectorUnderTest:
        """Returns an election that nobody has taken part in yet."""
        return ElectorUnderTest(self.driver, self.options(f"bench-{uuid4().hex}"), self.session)


class DatabaseLease(BenchElector):
    """The lease in the outbox's own database, PostgreSQL."""

    driver = "lease"
    session = 2.0

    @property
    def service(self) -> Service:
        """PostgreSQL."""
        return self.servers.postgres

    def options(self, election: str) -> LeaseOptions:
        """Creates an outbox for the election."""
        driver = find(Seam.DIALECT, "postgres")
        dsn = self.servers.postgres.dsn
        dsn = dsn if self._port is None else make_conninfo(dsn, port=self._port)
        options = driver.options(data_source=dsn, table=election.replace("-", "_"))
        driver.create(options).create()
        return LeaseOptions(partial(connect, options), session_timeout=self.session)


def connect(options: Any) -> Lease:
    """Connects to the lease of an outbox."""
    return find(Seam.DIALECT, "postgres").create(options).lease()


class Etcd(BenchElector):
    """A key in etcd, which needs twice its election timeout of 1 s."""

    driver = "etcd"
    session = 2.0

    @property
    def service(self) -> Service:
        """One member."""
        return self.servers.etcd

    def options(self, election: str) -> EtcdOptions:
        """The election is a key."""
        endpoints = [self.address(self.servers.etcd.endpoint)]
        return EtcdOptions(leader_group_id=election, endpoints=endpoints, session_timeout=self.session)

    def settings(self, election: str) -> Mapping[str, Any]:
        """Adds the member."""
        return {**super().settings(election), "endpoints": [self.servers.etcd.endpoint]}


class ZooKeeper(BenchElector):
    """A node in ZooKeeper."""

    driver = "zookeeper"
    session = 2.0

    @property
    def service(self) -> Service:
        """One server."""
        return self.servers.zookeeper

    def options(self, election: str) -> ZooKeeperOptions:
        """The election is a node."""
        hosts = self.address(self.servers.zookeeper.hosts)
        return ZooKeeperOptions(hosts=hosts, leader_group_id=election, session_timeout=self.session)

    def settings(self, election: str) -> Mapping[str, Any]:
        """Adds the server."""
        return {**super().settings(election), "hosts": self.servers.zookeeper.hosts}


class Neli(BenchElector):
    """A consumer group of Kafka, whose brokers permit no shorter session by default."""

    driver = "neli-kafka"
    session = 6.0

    @property
    def service(self) -> Service:
        """One broker."""
        return self.servers.kafka

    def options(self, election: str) -> NeliOptions:
        """The election is a group."""
        config = {"bootstrap.servers": self.address(self.servers.kafka.bootstrap)}
        return NeliOptions(config, leader_group_id=election, session_timeout=self.session)


class Kubernetes(BenchElector):
    """A Lease of Kubernetes."""

    driver = "kubernetes"
    session = 2.0

    @property
    def service(self) -> Service:
        """One API server."""
        return self.servers.kubernetes

    def options(self, election: str) -> KubernetesOptions:
        """The election is a Lease."""
        server = self.servers.kubernetes
        access = server.admin()
        access["server"] = f"https://{self.address(f'127.0.0.1:{server.port}')}"
        return KubernetesOptions(leader_group_id=election, session_timeout=self.session, **access)

    def settings(self, election: str) -> Mapping[str, Any]:
        """Adds the API server."""
        access = self.servers.kubernetes.admin()
        names = {"token_file": "tokenFile", "ca_file": "caFile"}
        return {**super().settings(election), **{names.get(key, key): value for key, value in access.items()}}


ELECTORS: Mapping[str, type[BenchElector]] = {
    each.driver: each for each in (DatabaseLease, Etcd, ZooKeeper, Kubernetes, Neli)
}
