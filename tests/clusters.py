"""Clusters: each has a replica of the outbox, a broker of its own, and a harvester."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # left out of its types
from outbox_api import Record
from outbox_audit import SEQUENCE_HEADER
from outbox_servers.services import KafkaBroker

from .harvesters import Harvester, until
from .replication import Replica, Replicas
from .topics import ends, messages, sequence

PARTITIONS = 4
KEYS = 200


class Brokers:
    """A broker for each cluster; they know nothing of each other.

    Args:
        count: How many clusters.
    """

    def __init__(self, count: int) -> None:
        self.of = {number: KafkaBroker(auto_create_topics=False) for number in range(1, count + 1)}

    def start(self) -> None:
        """Starts all of them, at the same time."""
        with ThreadPoolExecutor() as threads:
            for _ in threads.map(KafkaBroker.start, self.of.values()):
                pass

    def close(self) -> None:
        """Ends all of them. Idempotent."""
        for broker in self.of.values():
            broker.close()


class Cluster:
    """One cluster.

    Args:
        replica: Its replica of the outbox.
        broker: Its broker.
        topic: The topic, a new one, which all clusters name alike.
        folder: For settings and logs.
        affinity: Options of the affinity; none for the affinity ``none``.
    """

    def __init__(
        self, replica: Replica, broker: KafkaBroker, topic: str, folder: Path, affinity: Mapping[str, Any]
    ) -> None:
        self.number = replica.number
        self.replica = replica
        self.affinity = dict(affinity)
        self.harvesters: list[Harvester] = []
        self._broker = broker
        self._topic = topic
        self._folder = folder
        self._written = 0
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        self._admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)

    def stash(self, records: int, per_transaction: int = 1000) -> None:
        """Commits records of this cluster's keys, numbered on."""
        numbers = range(self._written + 1, self._written + records + 1)
        self._written += records
        made = [
            Record(
                topic=self._topic,
                key=f"{self.number}-{number % KEYS}",
                value=f"record {number}",
                headers=((SEQUENCE_HEADER, str(number)),),
            )
            for number in numbers
        ]
        self.replica.stash(made, per_transaction)

    @property
    def written(self) -> set[tuple[str, int]]:
        """Key and number of each record that was committed."""
        return {(f"{self.number}-{number % KEYS}", number) for number in range(1, self._written + 1)}

    @property
    def settings(self) -> Path:
        """The file with the settings of the last harvester."""
        return self._folder / f"cluster-{self.number}.yaml"

    def harvest(self, **harvest: Any) -> Harvester:
        """Starts a harvester; keyword arguments replace keys below ``harvest:``."""
        base = {
            "name": f"cluster-{self.number}",
            "baseKafkaConfig": {"bootstrap.servers": self._broker.bootstrap},
            "producerKafkaConfig": {"delivery.timeout.ms": 30_000},  # nothing is sent twice on a busy machine
            "dialect": self.replica.driver,
            "dataSource": self.replica.dsn,
            "elector": "static",
            "engine": "inline",
            "limits": {"sendConcurrency": 2, "minMetricsInterval": "1s"},
        }
        if self.affinity:
            base["affinity"] = {"driver": "cluster", "clusterID": self.number, **self.affinity}
        name = f"cluster-{self.number}-{len(self.harvesters)}"
        self.settings.write_text(json.dumps({"harvest": {**base, **harvest}}, indent=1))
        harvester = Harvester(name, self.settings)
        self.harvesters.append(harvester)
        return harvester

    def kill(self) -> None:
        """Kills its harvesters with SIGKILL."""
        for harvester in self.harvesters:
            if harvester.running:
                harvester.kill()
                harvester.wait(60)

    def delivered(self) -> list[tuple[str, int]]:
        """Returns key and number of each record in its topic, in the order of each partition."""
        arrived = messages(self._broker.bootstrap, self._topic, self._ends())
        return [(each.key().decode(), sequence(each) or 0) for each in arrived]  # type: ignore[union-attr]

    def _ends(self) -> dict[int, int]:
        return ends(self._admin, self._topic, PARTITIONS)


class Clusters:
    """All clusters.

    Args:
        replicas: Their replicas.
        brokers: Their brokers.
        topic: A new topic.
        folder: For settings and logs.
        affinity: Options of every affinity.
    """

    def __init__(
        self, replicas: Replicas, brokers: Brokers, topic: str, folder: Path, **affinity: Any
    ) -> None:
        given = {"clustersCount": len(replicas.numbers), **affinity} if affinity else {}
        self.replicas = replicas
        self.of = {
            number: Cluster(replicas.of[number], brokers.of[number], topic, folder, given)
            for number in replicas.numbers
        }

    def __getitem__(self, number: int) -> Cluster:
        return self.of[number]

    def harvest(self, numbers: Iterable[int] = (), **harvest: Any) -> None:
        """Starts a harvester in each of these clusters, or in all, and waits until they lead."""
        started = [self.of[number].harvest(**harvest) for number in numbers or self.of]
        for harvester in started:
            harvester.wait_for("leader acquired", 60)

    def stash(self, records: int, numbers: Iterable[int] = ()) -> None:
        """Commits so many records in each of these clusters, or in all."""
        for number in numbers or self.of:
            self.of[number].stash(records)

    def wait_until_empty(self, numbers: Iterable[int] = (), timeout: float = 150.0) -> None:
        """Waits until the replicas of these clusters, or all, have no rows."""
        waiting = [self.of[number].replica for number in numbers or self.of]
        until(lambda: not any(replica.count() for replica in waiting), "the outboxes are empty", timeout)

    def counts(self) -> dict[int, dict[int, int]]:
        """Returns for the records of each cluster how many messages of them each cluster's topic has.

        Checks that nothing was lost or invented, and that the first deliveries of each key within each topic
        are in order.
        """
        delivered = {number: cluster.delivered() for number, cluster in self.of.items()}
        counts: dict[int, dict[int, int]] = {}
        for origin, cluster in self.of.items():
            written = cluster.written
            arrived = {number: [r for r in each if r in written] for number, each in delivered.items()}
            everywhere = {record for each in arrived.values() for record in each}
            assert everywhere == written, f"cluster {origin} misses {written - everywhere}"
            counts[origin] = {number: len(each) for number, each in arrived.items() if each}
        for number, each in delivered.items():
            _assert_order(number, each)
        return counts

    def repeated(self) -> int:
        """Returns how many messages repeat a record, in whatever cluster."""
        times = Counter(record for cluster in self.of.values() for record in cluster.delivered())
        return times.total() - len(times)

    def close(self) -> None:
        """Ends all harvesters. Idempotent."""
        for cluster in self.of.values():
            for harvester in cluster.harvesters:
                harvester.close()


def _assert_order(number: int, delivered: Iterable[tuple[str, int]]) -> None:
    """Checks that the first deliveries of each key in one cluster's topic are in order."""
    last: dict[str, int] = {}
    seen: set[tuple[str, int]] = set()
    for key, position in delivered:
        if (key, position) not in seen:
            assert position > last.get(key, 0), f"cluster {number} delivers {position} of {key} late"
            last[key] = position
            seen.add((key, position))
