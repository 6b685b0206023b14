"""Databases that replicate one outbox to each other, set up as docs/multi-cluster.md says."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from string import Template
from typing import Any, ClassVar
from urllib.parse import urlsplit

import psycopg
from outbox_api import Dialect, Record, Seam, Stasher, find
from outbox_cluster import ClusterAffinity, ClusterOptions
from outbox_servers.services import MariaDbServer, PostgresServer

from .harvesters import until

DOCUMENT = Path(__file__).parents[1] / "docs" / "multi-cluster.md"
SECONDS = 120.0
"""How long replication may take when nothing is wrong."""


def block(title: str, **values: object) -> str:
    """Returns the code of the document below the comment ``<!-- title -->``, with ``${NAME}`` replaced."""
    found = re.search(
        rf"^<!-- {re.escape(title)} -->\n```\w+\n(.*?)^```",
        DOCUMENT.read_text("utf-8"),
        re.DOTALL | re.MULTILINE,
    )
    assert found, f"{DOCUMENT.name} has no block '{title}'"
    return Template(found[1]).substitute({name: str(value) for name, value in values.items()})


def settings(title: str, **values: object) -> dict[str, str]:
    """Returns the server's settings in a block of the document."""
    pairs = (line.split(" = ", 1) for line in block(title, **values).splitlines() if line)
    return {name: value.replace("'", "") for name, value in pairs}


class Replica(ABC):
    """One cluster's replica of the outbox.

    Args:
        number: The cluster's number.
        dsn: The data source of its database.
        affinity: The cluster's affinity.
    """

    driver: ClassVar[str]

    def __init__(self, number: int, dsn: str, affinity: ClusterAffinity) -> None:
        self.number = number
        self.dsn = dsn
        driver = find(Seam.DIALECT, self.driver)
        self.dialect: Dialect = driver.create(driver.options(data_source=dsn, origin=affinity.origin()))
        self._stasher = Stasher(dialect=self.driver)

    def stash(self, records: Sequence[Record], per_transaction: int = 1000) -> None:
        """Commits records; the database's default says in which cluster."""
        with closing(self.dialect.stash_connection()) as connection:
            for start in range(0, len(records), per_transaction):
                self._stasher.stash_many(connection, records[start : start + per_transaction])
                connection.commit()

    def count(self) -> int:
        """Returns how many rows there are."""
        return int(self.execute("SELECT count(*) FROM outbox")[0][0])

    @abstractmethod
    def execute(self, statement: str) -> Sequence[Any]:
        """Executes one statement in a transaction of its own, and returns its rows, if any."""


class Replicas(ABC):
    """The servers of all clusters; each replicates to every other.

    Args:
        count: How many.
    """

    def __init__(self, count: int) -> None:
        self.numbers = range(1, count + 1)
        self.of: dict[int, Any] = {}
        self._stack = ExitStack()

    def links(self) -> Iterator[tuple[int, int]]:
        """Yields each link: the cluster that receives, and the one it receives from."""
        return ((own, other) for own in self.numbers for other in self.numbers if own != other)

    def between(self, *groups: Sequence[int]) -> list[tuple[int, int]]:
        """Returns the links between clusters of different groups."""
        group = {number: place for place, numbers in enumerate(groups) for number in numbers}
        return [(own, other) for own, other in self.links() if group[own] != group[other]]

    def affinity(self, number: int, **options: Any) -> ClusterAffinity:
        """Returns the affinity that tells a dialect which columns there are."""
        given = {"maximum_delay": 60.0, "arrival_column": "arrival_time", **options}
        return ClusterAffinity(ClusterOptions(cluster_id=number, clusters_count=len(self.numbers), **given))

    @contextmanager
    def cut(self, links: Sequence[tuple[int, int]]) -> Iterator[None]:
        """Stops replication over these links until the block ends."""
        for own, other in links:
            self.stop(own, other)
        try:
            yield
        finally:
            for own, other in links:
                self.resume(own, other)

    def wait_until_same(self, rows: int | None = None) -> None:
        """Waits until all replicas have equally many rows, or so many."""

        def same() -> bool:
            counts = {replica.count() for replica in self.of.values()}
            return counts == {rows} if rows is not None else len(counts) == 1

        until(same, f"all replicas have {rows or 'the same number of'} rows", SECONDS)

    @abstractmethod
    def stop(self, own: int, other: int) -> None:
        """Stops one link."""

    @abstractmethod
    def resume(self, own: int, other: int) -> None:
        """Starts one link again."""

    def close(self) -> None:
        """Ends what was started. Idempotent."""
        self._stack.close()


class PostgresReplica(Replica):
    """A replica in PostgreSQL."""

    driver = "postgres"

    def execute(self, statement: str) -> Sequence[Any]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


class PostgresServers:
    """Servers for several tests.

    Args:
        count: How many.
        binaries: Which PostgreSQL; the embedded one if not given.
    """

    def __init__(self, count: int, binaries: Path | None = None) -> None:
        given = settings("postgresql.conf") | {"wal_retrieve_retry_interval": "200ms"}
        self.servers = {
            number: PostgresServer(settings=given, binaries=binaries) for number in range(1, count + 1)
        }

    def start(self) -> None:
        """Starts those that do not run."""
        for server in self.servers.values():
            server.start()

    def close(self) -> None:
        """Ends all. Idempotent."""
        for server in self.servers.values():
            server.close()


class PostgresReplicas(Replicas):
    """Databases of running servers, and logical replication between them.

    Args:
        servers: The servers.
        name: The name of a new database on each.
        version: Whose set-up: 15 or 16.
    """

    def __init__(self, servers: PostgresServers, name: str, version: int = 16) -> None:
        super().__init__(len(servers.servers))
        self.servers = servers
        self._name = name
        for number, server in servers.servers.items():
            dsn = server.create_database(name)
            replica = PostgresReplica(number, dsn, self.affinity(number))
            self.of[number] = replica
            replica.dialect.create()
            _each(replica, block(f"postgresql {version}: each server", OWN=number))
        for own, other in self.links():
            title = f"postgresql {version}: each other cluster"
            _each(self.of[own], block(title, OWN=own, OTHER=other, SOURCE=self.of[other].dsn))

    def stop(self, own: int, other: int) -> None:
        self.of[own].execute(f"ALTER SUBSCRIPTION outbox_{other}_to_{own} DISABLE")
        applying = f"SELECT pid FROM pg_stat_subscription WHERE subname = 'outbox_{other}_to_{own}'"
        until(lambda: self.of[own].execute(applying) in ([], [(None,)]), "a subscription stops", SECONDS)

    def resume(self, own: int, other: int) -> None:
        self.of[own].execute(f"ALTER SUBSCRIPTION outbox_{other}_to_{own} ENABLE")

    def close(self) -> None:
        self.servers.start()
        for own, other in self.links():
            with suppress(psycopg.errors.UndefinedObject):
                self.of[own].execute(f"DROP SUBSCRIPTION outbox_{other}_to_{own}")
        for server in self.servers.servers.values():
            server.drop_database(self._name)


class MariaDbReplica(Replica):
    """A replica in MariaDB."""

    driver = "mysql"

    def execute(self, statement: str) -> Sequence[Any]:
        with closing(self.dialect.stash_connection()) as connection:
            cursor = connection.cursor()
            cursor.execute(statement)
            rows: Sequence[Any] = cursor.fetchall()
            connection.commit()
            return rows


class MariaDbReplicas(Replicas):
    """Two servers, each of which is the other's replica.

    Args:
        overrides: Settings of the servers instead of the document's.
    """

    def __init__(self, overrides: Mapping[str, str] | None = None) -> None:
        super().__init__(2)
        servers = {
            number: self._stack.enter_context(
                MariaDbServer(settings={**settings("my.cnf", OWN=number), **(overrides or {})})
            )
            for number in self.numbers
        }
        for number, server in servers.items():
            # A database and its tables are not replicated: only rows of the outbox are.
            replica = MariaDbReplica(number, server.create_database("shop"), self.affinity(number))
            self.of[number] = replica
            replica.dialect.create()
            _each(replica, block("mariadb: arrival"))
        positions = {n: self.of[n].execute("SELECT @@gtid_binlog_pos")[0][0] for n in self.numbers}
        for own, other in self.links():
            at = urlsplit(servers[other].dsn)
            values = {"HOST": at.hostname, "PORT": at.port, "USER": at.username, "PASSWORD": at.password}
            values["POSITION"] = positions[other]
            _each(self.of[own], block("mariadb: the other cluster", **values))

    def stop(self, own: int, other: int) -> None:
        self.of[own].execute("STOP SLAVE")

    def resume(self, own: int, other: int) -> None:
        self.of[own].execute("START SLAVE")


def _each(replica: Replica, script: str) -> None:
    for statement in script.split(";"):
        if statement.strip():
            replica.execute(statement)
