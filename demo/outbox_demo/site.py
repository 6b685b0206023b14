"""One cluster of the demonstration of several clusters: a database, a broker, a harvester."""

import time
from collections import Counter
from pathlib import Path
from string import Template

import psycopg
import yaml
from outbox_api import OutboxError, Record, Stasher
from outbox_audit import SEQUENCE_HEADER, read_topic
from outbox_core.config import load
from outbox_servers.services import KafkaBroker, PostgresServer

from outbox_demo.harvester import Harvester
from outbox_demo.options import PARTITIONS, TOPIC
from outbox_demo.replication import PUBLISH, SETTINGS, SUBSCRIBE

CLUSTERS = 3
DELAY = 8
"""The maximum delay, in seconds."""
KEYS = 50
_TICK_SECONDS = 0.2


class Site:
    """One cluster; it does not outlive the process.

    Args:
        number: Its number.
        folder: For configuration and logs.
    """

    def __init__(self, number: int, folder: Path) -> None:
        self.number = number
        self._postgres = PostgresServer(settings=SETTINGS)
        self._kafka = KafkaBroker(auto_create_topics=False)
        self._settings = folder / f"cluster-{number}.yaml"
        self._harvester: Harvester | None = None
        self._starts = self._written = 0

    @property
    def dsn(self) -> str:
        """The database's address; contains a password."""
        return self._postgres.dsn

    def open(self) -> None:
        """Starts database and broker, and creates outbox and topic as ``outbox init`` does."""
        self._postgres.start()
        self._kafka.start()
        self._settings.write_text(yaml.safe_dump(self._configuration(), sort_keys=False), encoding="utf-8")
        settings = load(self._settings).harvest
        settings.dialect.create().create()
        settings.publisher.create().prepare([TOPIC], PARTITIONS)
        self.execute(PUBLISH)

    def follow(self, other: "Site") -> None:
        """Receives from now on what the other cluster writes and purges."""
        values = {"OWN": self.number, "OTHER": other.number, "SOURCE": other.dsn}
        self.execute(Template(SUBSCRIBE).substitute(values))

    def start_harvester(self) -> None:
        """Starts a harvester, also after the one before was killed."""
        self._starts += 1
        self._harvester = Harvester(f"cluster-{self.number}-{self._starts}", self._settings)

    def wait_until_leading(self, seconds: float) -> None:
        """Waits until the harvester that was started last leads.

        Raises:
            OutboxError: It does not for too long, or has ended.
        """
        assert self._harvester is not None  # noqa: S101 - it was started
        deadline = time.monotonic() + seconds
        while "leader acquired" not in self._harvester.log.read_text(errors="replace"):
            self._harvester.check()
            if time.monotonic() > deadline:
                raise OutboxError(f"the harvester of cluster {self.number} does not lead after {seconds:g} s")
            time.sleep(_TICK_SECONDS)

    def kill_harvester(self) -> None:
        """Kills the harvester with SIGKILL."""
        if self._harvester:
            self._harvester.kill()

    def write(self, records: int) -> None:
        """Commits records; the database's default says that they are this cluster's."""
        numbers = range(self._written + 1, self._written + records + 1)
        self._written += records
        made = [
            Record(
                TOPIC,
                f"{self.number}-{number % KEYS}",
                f"order {number}",
                ((SEQUENCE_HEADER, str(number)),),
            )
            for number in numbers
        ]
        with psycopg.connect(self.dsn) as connection:
            Stasher(dialect="postgres").stash_many(connection, made)

    def rows(self) -> int:
        """Returns how many rows its replica has."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            row = connection.execute("SELECT count(*) FROM outbox").fetchone()
        return int(row[0]) if row else 0

    def wait_until_empty(self, seconds: float) -> None:
        """Waits until its replica has no rows.

        Raises:
            OutboxError: It has some for too long, or the harvester has ended.
        """
        deadline = time.monotonic() + seconds
        while rows := self.rows():
            if self._harvester:
                self._harvester.check()
            if time.monotonic() > deadline:
                raise OutboxError(f"cluster {self.number} has {rows} rows after {seconds:g} s")
            time.sleep(_TICK_SECONDS)

    def delivered(self) -> Counter[tuple[int, int]]:
        """Returns how often its topic has each record: its cluster and its number."""
        arrived = read_topic({"bootstrap.servers": self._kafka.bootstrap}, TOPIC)
        return Counter((int(key.split("-")[0]), number or 0) for key, number in arrived)

    def execute(self, statement: str) -> None:
        """Executes a statement in autocommit mode."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement.encode())

    def close(self) -> None:
        """Ends everything. Idempotent."""
        if self._harvester:
            self._harvester.close()
        self._kafka.close()
        self._postgres.close()

    def _configuration(self) -> dict[str, object]:
        return {
            "harvest": {
                "name": f"cluster-{self.number}",
                "dataSource": self.dsn,
                "baseKafkaConfig": {"bootstrap.servers": self._kafka.bootstrap},
                "elector": "static",
                "engine": "inline",
                "limits": {"sendConcurrency": 2},
                "affinity": {
                    "driver": "cluster",
                    "clusterID": self.number,
                    "clustersCount": CLUSTERS,
                    "maximumDelay": f"{DELAY}s",
                    "arrivalColumn": "arrival_time",
                },
            }
        }
