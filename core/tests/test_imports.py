"""What a command imports: nothing that it does not need, so that a harvester starts within a second.

Each import is paid for at every start, in Python's own time; connections take less.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

DRIVERS = {"psycopg", "pymysql", "oracledb", "pytds", "sqlite3", "confluent_kafka"}
OTHER_ENGINE = {"pyspark", "pyarrow", "pandas", "outbox_spark.engine"}
OTHER_COMMANDS = {
    f"outbox_core.cli.{name}"
    for name in ("audit", "check", "fence", "journal", "parked", "pump", "status", "takeover")
}

MOST_OF_A_PROBE = 113
"""Modules of ours that ``outbox health`` may import."""

PROGRAM = """
import json, sys
from outbox_core.cli import main
try:
    main(sys.argv[1:])
finally:
    print(json.dumps(list(sys.modules)), file=sys.stderr)
"""
START = """
import json, sys
from outbox_core.cli import run
from outbox_core.config import parse
from outbox_core.harvest import Harvest
Harvest(parse(sys.argv[1]).harvest)
print(json.dumps(list(sys.modules)), file=sys.stderr)
"""


def imported(program: str, *arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    modules = done.stderr.splitlines()[-1]
    assert modules.startswith("["), done.stderr
    return set(json.loads(modules))


def test_help_imports_no_command():
    modules = imported(PROGRAM, "--help")
    assert not modules & (DRIVERS | OTHER_ENGINE | OTHER_COMMANDS | {"outbox_core.cli.run"})


def test_the_help_of_a_command_imports_that_one_alone():
    modules = imported(PROGRAM, "run", "--help")
    assert "outbox_core.cli.run" in modules
    assert not modules & (DRIVERS | OTHER_ENGINE | OTHER_COMMANDS)


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_harvester_imports_its_own_drivers_alone(delivery: str, tmp_path: Path):
    harvest = {
        "delivery": delivery,
        "engine": "inline",
        "elector": "static",
        "dialect": "sqlite",
        "dataSource": str(tmp_path / "outbox.db"),
    }
    modules = imported(START, json.dumps({"harvest": harvest}))
    assert {"outbox_sqlite.dialect", "outbox_kafka.publisher"} <= modules
    unneeded = DRIVERS - {"sqlite3", "confluent_kafka"} | {
        "outbox_postgres",
        "outbox_mysql",
        "outbox_neli_kafka",
    }
    assert not modules & (OTHER_ENGINE | OTHER_COMMANDS | unneeded | {"rich"})


MONITORED = """
import json, sys
from outbox_core.cli import run
from outbox_core.cli.run import monitored
from outbox_core.config import parse
with monitored(parse(sys.argv[1]), list, json.loads(sys.argv[2])):
    print(json.dumps(list(sys.modules)), file=sys.stderr)
"""
SERVER = {"fastapi", "starlette", "uvicorn", "outbox_console"}
PUSH = {"outbox_core.monitoring.otlp", "outbox_core.monitoring.provider"}


@pytest.mark.parametrize(
    ("http", "variables", "wanted"),
    [
        ({}, {}, set()),
        ({}, {"OTEL_METRICS_EXPORTER": "none"}, set()),
        ({}, {"OTEL_METRICS_EXPORTER": "otlp"}, PUSH),
        ({"listen": "127.0.0.1:0"}, {}, SERVER),
    ],
)
def test_what_monitoring_needs_is_imported_where_it_is_on(
    http: dict[str, str], variables: dict[str, str], wanted: set[str]
):
    data = {"http": http, "harvest": {"engine": "inline", "elector": "static"}}
    modules = imported(MONITORED, json.dumps(data), json.dumps(variables))
    assert modules & (PUSH | SERVER) == wanted


def test_a_probe_imports_little(tmp_path: Path):
    settings = tmp_path / "outbox.yaml"
    dialect = {"driver": "sqlite", "dataSource": str(tmp_path / "none.db")}
    broker = {"driver": "kafka", "kafka": {"bootstrap.servers": "127.0.0.1:1"}}
    harvest = {"dialect": dialect, "publisher": broker, "elector": "lease", "engine": "inline"}
    settings.write_text(json.dumps({"harvest": harvest}), "utf-8")
    modules = imported(PROGRAM, "health", "--patience", "100ms", "-f", str(settings))
    ours = {name for name in modules if name.startswith("outbox_")}
    assert "outbox_core.status.health" in ours
    assert len(ours) <= MOST_OF_A_PROBE, sorted(ours)
    unneeded = {"outbox_core.lanes", "outbox_core.engines", "outbox_core.delivery"}
    assert not modules & (unneeded | {"rich", "textual"})


@pytest.mark.parametrize("watch", [[], ["--watch"]])
def test_keys_are_imported_where_there_is_a_terminal(watch: list[str], tmp_path: Path):
    settings = tmp_path / "outbox.yaml"
    dialect = {"driver": "sqlite", "dataSource": str(tmp_path)}
    settings.write_text(json.dumps({"harvest": {"dialect": dialect, "engine": "inline"}}), "utf-8")
    modules = imported(PROGRAM, "status", *watch, "-f", str(settings))
    assert "outbox_core.cli.status" in modules
    assert "rich" in modules
    assert not modules & {"textual", "asyncio", "outbox_core.cli.watching", "outbox_core.monitoring"}


def test_the_settings_of_a_lane_need_neither_yaml_nor_those_of_the_server():
    modules = imported(
        "import json, sys, outbox_core.settings; print(json.dumps(list(sys.modules)), file=sys.stderr)"
    )
    assert not modules & {"yaml", "pydantic", "outbox_core.config.reader", "outbox_core.settings.http"}
