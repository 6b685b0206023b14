"""Two servers of MariaDB that replicate to each other: a row has the time when it came to each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from re import findall
from typing import Any

import pytest
from outbox_api import Level, Origin, Record, Stasher
from outbox_mysql import MySqlDialect, MySqlOptions
from outbox_mysql.options import DataSource
from outbox_servers.services.external import connect_mysql
from outbox_servers.services.mysql import MariaDbServer

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[3] / "docs" / "multi-cluster.md").read_text("utf-8")
SHOWN = findall(r"CREATE TRIGGER [^;]*;", PAGE.replace("arrival_time", "arrived"))
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


LOCAL = (
    "CREATE TRIGGER filled BEFORE INSERT ON outbox FOR EACH ROW"
    " SET NEW.arrived = CONVERT_TZ(SYSDATE(6), @@session.time_zone, '+00:00')"
)
"""The time of arrival from local time, which may be ambiguous."""


def zone(summer_ends: datetime) -> str:
    """Returns a time zone, for the variable TZ, whose summer time of UTC+2 ends at a moment."""
    local = summer_ends + timedelta(hours=2)
    begins = (local - timedelta(days=60)).timetuple().tm_yday - 1
    return f"STD-1DST-2,{begins}/0,{local.timetuple().tm_yday - 1}/{local:%H:%M:%S}"


@pytest.fixture(params=[-20, 20], ids=["the hour again", "the hour that comes again"])
def in_autumn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Replica]:
    """A server where summer time ends, or has ended, some minutes from now."""
    monkeypatch.setenv("TZ", zone(datetime.now(UTC) + timedelta(minutes=request.param)))
    settings = {"default-time-zone": "SYSTEM", "slave-run-triggers-for-rbr": "ENFORCE"}
    with MariaDbServer(settings=settings) as server:
        source = server.create_database("shop")
        origin = Origin(column="cluster_id", own=1, known=(1, 2), arrival="arrived")
        dialect = MySqlDialect(MySqlOptions(data_source=source, origin=origin))
        dialect.create()
        with connect_mysql(source, autocommit=True) as connection, connection.cursor() as cursor:
            yield Replica(source, dialect, cursor)


def arrivals(replica: Replica) -> Any:
    return replica.query("SELECT arrived, create_time FROM outbox ORDER BY id")


def arrival_findings(replica: Replica) -> list[Any]:
    return [each for each in replica.dialect.check() if each.subject == "arrival"]


def test_the_time_of_arrival_is_right_in_the_hour_that_autumn_has_twice(in_autumn: Replica) -> None:
    for trigger in SHOWN:
        in_autumn.query(trigger)
    assert [each.level for each in arrival_findings(in_autumn)] == [Level.OK]
    for session_zone in ("SYSTEM", "+05:30"):
        in_autumn.query(f"SET time_zone = '{session_zone}', timestamp = UNIX_TIMESTAMP() - 600")
        columns = "(kafka_topic, kafka_key, cluster_id)"
        in_autumn.query(f"INSERT INTO outbox {columns} VALUES ('t', 'k', 1), ('t', 'k', 1)")
        assert in_autumn.query("SELECT @@session.time_zone") == ((session_zone,),)
        in_autumn.query("SET timestamp = DEFAULT")
    assert len(arrivals(in_autumn)) == 4
    for arrived, created in arrivals(in_autumn):  # as if the replicated change were ten minutes old
        assert timedelta(minutes=9) < arrived - created < timedelta(minutes=11)


def test_a_trigger_that_reads_local_time_is_told_with_one_that_does_not(in_autumn: Replica) -> None:
    in_autumn.query(LOCAL)
    [found] = arrival_findings(in_autumn)
    assert found.level is Level.WARNING
    assert "local time" in found.message
    in_autumn.query("DROP TRIGGER filled")
    in_autumn.query(found.cure.partition(": ")[2])
    assert [each.level for each in arrival_findings(in_autumn)] == [Level.OK]
