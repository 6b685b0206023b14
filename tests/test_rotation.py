"""The database's password changes under load: records flow on, and none is lost, repeated or out of order."""

from __future__ import annotations

import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from outbox_servers.services import Kafka
from outbox_servers.services.external import connect_mysql
from psycopg.conninfo import make_conninfo

from .databases import Database, MySql, Postgres
from .harvesters import Fleet, Measure
from .shop import Shop

REFUSED_SECONDS = 2.0
"""For how long connects are refused: longer than ``stopAfter``, and than some attempts of each lane."""


class Login(ABC):
    """An account of the harvester in a database, whose password changes."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.name = f"harvester_{uuid4().hex[:8]}"

    @property
    @abstractmethod
    def source(self) -> str:
        """The account's data source, without a password."""

    @abstractmethod
    def create(self) -> None:
        """Creates the account, with all rights."""

    @abstractmethod
    def rotate(self, password: str) -> None:
        """Changes the account's password, and ends all of its sessions."""

    @abstractmethod
    def drop(self) -> None:
        """Drops the account."""


class PostgresLogin(Login):
    @property
    def source(self) -> str:
        return make_conninfo(self.database.dsn, user=self.name, password="")

    def create(self) -> None:
        self._execute(f"CREATE ROLE {self.name} SUPERUSER LOGIN")

    def rotate(self, password: str) -> None:
        self._execute(f"ALTER ROLE {self.name} PASSWORD '{password}'")
        self._execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{self.name}'")

    def drop(self) -> None:
        self._execute(f"DROP OWNED BY {self.name}; DROP ROLE {self.name}")

    def _execute(self, statement: str) -> None:
        with psycopg.connect(self.database.dsn, autocommit=True) as admin:
            admin.execute(statement.encode())


class MariaDbLogin(Login):
    @property
    def source(self) -> str:
        address = urlsplit(self.database.dsn)
        return address._replace(netloc=f"{self.name}@{address.hostname}:{address.port}").geturl()

    def create(self) -> None:
        self._execute(f"CREATE USER {self.name}", f"GRANT ALL ON *.* TO {self.name}")

    def rotate(self, password: str) -> None:
        self._execute(f"ALTER USER {self.name} IDENTIFIED BY '{password}'", f"KILL USER {self.name}")

    def drop(self) -> None:
        self._execute(f"DROP USER {self.name}")

    def _execute(self, *statements: str) -> None:
        with closing(connect_mysql(self.database.dsn, autocommit=True)) as admin:
            for statement in statements:
                admin.cursor().execute(statement)


class Case(NamedTuple):
    """Whose password changes, and what the harvester is set to."""

    login: Login
    settings: Mapping[str, Any]


@pytest.fixture(
    params=[
        pytest.param(("postgres", {"delivery": "exactly-once"}), id="postgres", marks=pytest.mark.slow),
        pytest.param(
            ("mariadb", {"delivery": "at-least-once", "elector": "lease"}),
            id="mariadb",
            marks=pytest.mark.slow,
        ),
    ],
)
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    server, settings = request.param
    dsn = request.getfixturevalue(f"{server}_dsn")
    login = PostgresLogin(Postgres(dsn)) if server == "postgres" else MariaDbLogin(MySql(dsn))
    login.create()
    yield Case(login, settings)
    login.drop()


@pytest.fixture
def shop(case: Case, kafka_broker: Kafka, topic: str) -> Shop:
    shop = Shop(case.login.database, kafka_broker, topic)
    shop.open()
    return shop


def test_a_password_changes_in_the_database_and_in_its_file(
    case: Case, shop: Shop, fleet: Fleet, tmp_path: Path, measure: Measure
) -> None:
    login = case.login
    file = tmp_path / "password"
    login.rotate("f1rst-s3cret")
    file.write_text("f1rst-s3cret\n")
    harvester = fleet.start(
        "a",
        dataSource=login.source,
        password=f"${{file:{file.name}}}",
        failures={"stopAfter": "500ms"},
        **case.settings,
    )
    harvester.wait_for("leader acquired", 120)
    harvester.send(signal.SIGHUP)
    harvester.wait_for("SIGHUP is ignored", 60)
    with shop.selling():
        shop.wait_for_sales(50)
        at_once = time.time()
        login.rotate("sec0nd-s3cret")
        replace(file, "sec0nd-s3cret\n")
        shop.wait_for_sales(50)
        shop.sell_one()
        with_a_gap = time.time()
        login.rotate("th1rd-s3cret")
        time.sleep(REFUSED_SECONDS)
        refused = harvester.wait_for(f"see that '{file}', which is read anew at each attempt", 60, with_a_gap)
        replace(file, "th1rd-s3cret\n")
        shop.wait_for_sales(50)
    shop.wait_until_harvested(60)

    assert harvester.running, harvester.tail()
    assert "password" in refused.text
    assert "s3cret" not in "\n".join(line.text for line in harvester.lines())
    result = shop.audit()
    assert result.good, result.summary()
    if case.settings["delivery"] == "exactly-once":
        assert len(shop.messages()) == len(shop.sold())
    deliveries = shop.deliveries()
    measure("longest silence, file replaced at once", silence(deliveries, at_once, with_a_gap))
    measure(
        f"longest silence, file {REFUSED_SECONDS:g} s later", silence(deliveries, with_a_gap, time.time())
    )
    harvester.leave()


def replace(file: Path, content: str) -> None:
    new = file.with_suffix(".new")
    new.write_text(content)
    new.replace(file)


def silence(deliveries: Sequence[float], since: float, until: float) -> float:
    times = [each for each in deliveries if since - 1 <= each <= until]
    return max(later - earlier for earlier, later in pairwise(times))
