"""Two servers of MariaDB that replicate to each other: a row has the time when it came to each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from re import findall
from typing import Any

import pytest
from outbox_mysql import MySqlDialect, MySqlOptions
from outbox_mysql.data_source import DataSource
from outbox_sdk import Level, Origin, Record, Stasher
from outbox_servers.services.external import connect_mysql
from outbox_servers.services.mysql import MariaDbServer

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
SHOWN = findall(r"CREATE TRIGGER [^;]*;", README)
DELAY = 2.0


@dataclass
class Replica:
    """One server.

    Attributes:
        source: Its data source.
        dialect: Its outbox.
        cursor: A session of an administrator.
    """

    source: str
    dialect: MySqlDialect
    cursor: Any

    def query(self, sql: str) -> Any:
        self.cursor.execute(sql)
        return self.cursor.fetchall()


@pytest.fixture
def replicas() -> Iterator[list[Replica]]:
    """Two servers with the same outbox, which do not replicate yet."""
    with ExitStack() as stack:
        made = []
        for number in (1, 2):
            settings: dict[str, str | int] = {
                "server-id": number, "log-bin": "log", "binlog-format": "ROW", "sync-binlog": 1,
                "auto-increment-increment": 2, "auto-increment-offset": number,
                "slave-run-triggers-for-rbr": "ENFORCE",
            }  # fmt: skip
            server = stack.enter_context(MariaDbServer(settings=settings))
            source = server.create_database("shop")
            origin = Origin(column="cluster_id", own=number, known=(1, 2), arrival="arrived")
            dialect = MySqlDialect(MySqlOptions(data_source=source, origin=origin))
            dialect.create()
            connection = stack.enter_context(connect_mysql(source, autocommit=True))
            made.append(Replica(source, dialect, stack.enter_context(connection.cursor())))
            for trigger in SHOWN:
                made[-1].query(trigger)
        yield made
        for each in made:
            each.query("STOP SLAVE")


def follow(replica: Replica, other: Replica) -> None:
    """Makes a server apply what happens at another from now on."""
    address = DataSource.parse(other.source)
    [(file, position, *_)] = other.query("SHOW MASTER STATUS")
    replica.query(
        f"CHANGE MASTER TO MASTER_HOST='{address.host}', MASTER_PORT={address.port},"
        f" MASTER_USER='{address.user}', MASTER_PASSWORD='{address.password}',"
        f" MASTER_LOG_FILE='{file}', MASTER_LOG_POS={position}"
    )
    replica.query("START SLAVE")


def until(look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_row_has_the_time_when_it_came_to_each(replicas: list[Replica]) -> None:
    one, two = replicas
    follow(one, two)
    follow(two, one)
    one.query("STOP SLAVE")
    connection = two.dialect.stash_connection()
    Stasher(dialect="mysql").stash(connection, Record("t", "k", "late"))
    connection.commit()
    connection.close()
    time.sleep(DELAY)
    one.query("START SLAVE")
    until(lambda: one.query("SELECT COUNT(*) FROM outbox") == ((1,),))
    two.query("UPDATE outbox SET leader_id = 'two'")
    until(lambda: one.query("SELECT leader_id FROM outbox") == (("two",),))
    times = "SELECT id, cluster_id, create_time, arrived FROM outbox"
    ((number, cluster, created, here),) = one.query(times)
    ((_, _, written, there),) = two.query(times)
    assert (number % 2, cluster) == (0, 2)
    assert created == written
    assert there - written < timedelta(seconds=DELAY / 2)
    assert here - written >= timedelta(seconds=DELAY)
    assert [each for each in one.dialect.check() if each.level is not Level.OK] == []
    one.query("DELETE FROM outbox")
    until(lambda: two.query("SELECT COUNT(*) FROM outbox") == ((0,),))
