"""Measures what an election costs its service while nothing happens: a leader alone, and with nine standbys.

Requests and bytes are counted by a proxy between the electors and the service, writes at the service itself.
Each elector has the same short session as in bench/takeovers.py. Prints a table in Markdown.

    python -m bench.election_cost --seconds 30
"""

from __future__ import annotations

import argparse
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass

import psycopg
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AdminClient,
    OffsetSpec,
)
from outbox_api import Elector
from outbox_servers.services.process import free_port
from outbox_testkit.conformance import ElectorUnderTest

from bench.electors import ELECTORS, Servers

SETTLED = 5.0
"""Seconds after the last process has joined."""
STANDBYS = 9


@dataclass(frozen=True)
class Count:
    """What has passed since the start.

    Attributes:
        requests: Pieces that processes have sent: a request each, unless several go out together.
        sent: Bytes to the service.
        received: Bytes from it.
    """

    requests: int = 0
    sent: int = 0
    received: int = 0

    def since(self, former: Count) -> Count:
        """Returns the difference."""
        return Count(
            self.requests - former.requests, self.sent - former.sent, self.received - former.received
        )


class CountingProxy:
    """Passes connections on to another port of this machine, and counts."""

    def __init__(self, port: int, target: Callable[[], int]) -> None:
        self._target = target
        self._lock = threading.Lock()
        self.count = Count()
        self._server = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accepts no more connections."""
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                service = socket.create_connection(("127.0.0.1", self._target()))
                for source, sink, sends in ((client, service, True), (service, client, False)):
                    source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(target=self._pass, args=(source, sink, sends), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, sends: bool) -> None:
        with suppress(OSError):
            while piece := source.recv(65536):
                with self._lock:
                    former = self.count
                    if sends:
                        self.count = Count(former.requests + 1, former.sent + len(piece), former.received)
                    else:
                        self.count = Count(former.requests, former.sent, former.received + len(piece))
                sink.sendall(piece)
        for end in source, sink:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Silent:
    """A candidate that does nothing."""

    def acquired(self) -> None:
        """Ignores it."""

    def revoked(self) -> None:
        """Ignores it."""

    def fenced(self) -> None:
        """Ignores it."""

    def failed(self, error: Exception) -> None:
        """Ends the benchmark with an error."""
        sys.exit(str(error))


def postgres_writes(servers: Servers) -> int:
    """Returns how many transactions have written."""
    with psycopg.connect(servers.postgres.dsn) as connection:
        row = connection.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint").fetchone()
    assert row is not None
    return int(row[0])


def etcd_writes(servers: Servers) -> int:
    """Returns how many proposals the members have agreed on."""
    with urllib.request.urlopen(f"http://{servers.etcd.endpoint}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    [found] = [line for line in lines if line.startswith("etcd_server_proposals_committed_total ")]
    return int(float(found.split()[1]))


def zookeeper_writes(servers: Servers) -> int:
    """Returns how many transactions there were."""
    host, _, port = servers.zookeeper.hosts.partition(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"srvr")
        text = b"".join(iter(lambda: connection.recv(4096), b"")).decode()
    [found] = [line for line in text.splitlines() if line.startswith("Zxid:")]
    return int(found.split()[1], 16) & 0xFFFFFFFF


def kubernetes_writes(servers: Servers) -> int:
    """Returns how many revisions the API server's etcd has had."""
    return int(servers.kubernetes.ask("GET", "/api/v1/namespaces")["metadata"]["resourceVersion"])


def kafka_writes(servers: Servers) -> int:
    """Returns how many records there are in all topics, those of the broker itself included."""
    admin = AdminClient({"bootstrap.servers": servers.kafka.bootstrap})
    topics = admin.list_topics(timeout=10).topics
    latest = {
        TopicPartition(name, part): OffsetSpec.latest()
        for name, topic in topics.items()
        for part in topic.partitions
    }
    return sum(int(end.result(10).offset) for end in admin.list_offsets(latest).values())


SERVICES: dict[str, tuple[Callable[[Servers], int], Callable[[Servers], int], str]] = {
    "lease": (lambda on: on.postgres.port, postgres_writes, "transactions"),
    "etcd": (lambda on: int(on.etcd.endpoint.rpartition(":")[2]), etcd_writes, "proposals"),
    "zookeeper": (lambda on: int(on.zookeeper.hosts.rpartition(":")[2]), zookeeper_writes, "transactions"),
    "kubernetes": (lambda on: on.kubernetes.port, kubernetes_writes, "revisions"),
    "neli-kafka": (lambda on: on.kafka.proxied_port, kafka_writes, "records"),
}
"""Elector -> the port of its service, how to count writes, and what they are."""


def measure(driver: str, seconds: float) -> list[str]:
    """Returns two rows of the table."""
    port = free_port()
    target, writes, unit = SERVICES[driver]
    rows = []
    with (
        Servers(kafka_proxy_port=port) as servers,
        closing(CountingProxy(port, lambda: target(servers))) as proxy,
    ):
        elector = ELECTORS[driver](servers, port)
        _ = elector.service  # starts it
        under = elector.election()
        running: list[Elector] = []
        try:
            for contenders in (1, 1 + STANDBYS):
                join(under, running, contenders)
                before, written, began = proxy.count, writes(servers), time.monotonic()
                time.sleep(seconds)
                passed, took = proxy.count.since(before), time.monotonic() - began
                written = writes(servers) - written
                rows.append(
                    f"| {driver} | {elector.session:g} s | {contenders - 1} | {passed.requests / took:.1f} | "
                    f"{passed.sent / took:,.0f} | {passed.received / took:,.0f} | "
                    f"{written / took:.1f} {unit} |"
                )
                print(rows[-1], file=sys.stderr, flush=True)
        finally:
            for each in reversed(running):
                each.stop()
    return rows


def join(under: ElectorUnderTest, running: list[Elector], contenders: int) -> None:
    """Starts electors until so many take part, and waits until they have settled."""
    while len(running) < contenders:
        running.append(under.create())
        running[-1].start(Silent())
    deadline = time.monotonic() + 60
    while not any(each.lease() > 0 for each in running):
        assert time.monotonic() < deadline, "nobody leads"
        time.sleep(0.1)
    time.sleep(SETTLED)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--electors", nargs="+", default=list(SERVICES), choices=list(SERVICES))
    parser.add_argument("--seconds", type=float, default=30.0, help="how long to count")
    arguments = parser.parse_args()
    rows = [row for driver in arguments.electors for row in measure(driver, arguments.seconds)]
    print("| elector | session | standbys | requests/s | bytes/s to it | bytes/s from it | its writes/s |")
    print("|---|---|---|---|---|---|---|")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
