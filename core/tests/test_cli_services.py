"""The command line with a real PostgreSQL and Kafka: commands of operators, and errors."""

import json
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import psycopg
import pytest
from outbox_audit import pump
from outbox_core.builtin import InlineWorkers
from outbox_core.cli.run import noted
from outbox_core.config import parse as configured
from outbox_core.harvest import Harvest

from .cli_runner import (
    INSERT,
    NOWHERE,
    OUTBOX,
    changed,
    configure,
    harvester,
    outbox,
    program,
    told,
    until,
    wait_for,
)

TABLES = [
    "outbox",
    "outbox_fence",
    "outbox_fence_notes",
    "outbox_fence_lease",
    "outbox_fence_members",
    "outbox_dead_letters",
    "outbox_journal",
    "outbox_fence_history",
]
ROWS = """
    SELECT kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values, xmin
    FROM outbox ORDER BY id
"""
HANGING = """
    SELECT count(DISTINCT pid)::int FROM pg_locks
    JOIN pg_database ON pg_database.oid = database AND datname = current_database()
    WHERE relation = 'outbox'::regclass AND NOT granted
"""


@pytest.fixture
def file(tmp_path: Path, postgres_dsn: str, kafka_bootstrap: str) -> Path:
    return configure(tmp_path, postgres_dsn, kafka_bootstrap)


@pytest.fixture
def running(file: Path) -> Iterator[subprocess.Popen[str]]:
    """A harvester that leads."""
    told(file, "init")
    with harvester(file) as process:
        yield process


def test_init_creates_what_is_missing_and_only_that(file: Path, postgres_dsn: str, topic: str):
    ddl = told(file, "init", "--dry-run", "--topic", topic)
    assert ddl.count("CREATE TABLE IF NOT EXISTS") == len(TABLES)
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        assert tables(connection) == []
        assert told(file, "init", "--topic", topic, "--partitions", "3").splitlines() == [
            *(f"created table {table}" for table in TABLES),
            f"created topic {topic} with 3 partitions",
        ]
        assert sorted(tables(connection)) == sorted(TABLES)
        assert told(file, "init", "--topic", topic) == "all tables and topics exist already\n"
        assert json.loads(told(file, "init", "--json")) == {"tables_created": [], "topics_created": []}


def test_init_creates_the_topics_for_dead_letters(file: Path, topic: str):
    letters = changed(file, failures={"topic": topic})
    assert json.loads(told(letters, "init", "--dry-run", "--json"))["topics"] == [topic]
    created = json.loads(told(letters, "init", "--json", "--topic", f"{topic}-records"))["topics_created"]
    assert sorted(created) == [topic, f"{topic}-records"]
    assert json.loads(told(letters, "init", "--json"))["topics_created"] == []


def test_the_ddl_of_a_dry_run_can_be_run_as_it_is(file: Path, postgres_dsn: str):
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(told(file, "init", "--dry-run").encode())
        assert sorted(tables(connection)) == sorted(TABLES)
    assert json.loads(told(file, "init", "--json"))["tables_created"] == []


class SlowEngine:
    """Takes until it is released to get ready, as Spark does."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def open(self, _: object) -> tuple[InlineWorkers, None]:
        assert self.released.wait(60)
        return InlineWorkers(), None

    def close(self, *_: object) -> None:
        """Does nothing."""


def test_status_shows_who_starts_its_engine(file: Path):
    told(file, "init")
    slow = changed(file, engine={"driver": "spark"})
    engine: Any = SlowEngine()
    settings = configured(slow.read_text(), str(slow), {}).harvest
    harvest = Harvest(settings, engine=engine, member="me 1")
    start = threading.Thread(target=harvest.start)

    def roles() -> list[str]:
        return [each["role"] for each in json.loads(told(file, "status", "--json"))["processes"]]

    with noted(settings, "me 1", harvest):
        start.start()
        try:
            until(lambda: roles() == ["starting"])
            assert re.search(r"is starting +\S+ +spark", told(file, "status"))
            engine.released.set()
            until(lambda: roles() == ["leads"])
            assert re.search(r"leads +\S+ +spark", told(file, "status"))
        finally:
            engine.released.set()
            start.join()
            harvest.stop()
    assert roles() == []


def tables(connection: "psycopg.Connection[tuple[str]]") -> list[str]:
    query = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
    return [name for (name,) in connection.execute(query)]


def test_check_finds_what_is_missing_and_says_how_to_cure_it(file: Path):
    done = outbox(file, "check", "--json")
    assert done.returncode == 1
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found["errors"] > 0
    errors = [finding for finding in found["findings"] if finding["level"] == "error"]
    assert any("outbox init" in finding["message"] + (finding["cure"] or "") for finding in errors)
    assert "harvesting cannot work yet" in outbox(file, "check").stdout
    told(file, "init")
    found = json.loads(told(file, "check", "--json"))
    assert found["errors"] == 0
    assert {finding["part"] for finding in found["findings"]} == {
        "settings",
        "connections of outbox",
        "dialect postgres",
        "elector static",
        "publisher kafka",
        "engine inline",
        "links",
    }
    assert "harvesting works" in told(file, "check")


def test_check_knows_what_spark_needs(file: Path, monkeypatch: pytest.MonkeyPatch):
    told(file, "init")
    few = changed(file, engine={"driver": "spark", "master": "local[1]", "laneGroups": 2})
    engine = [
        row
        for row in json.loads(outbox(few, "check", "--json").stdout)["findings"]
        if "engine" in row["part"]
    ]
    assert [(row["subject"], row["level"]) for row in engine] == [
        ("Java", "ok"),
        ("Spark slots", "error"),
        ("Spark security", "ok"),
    ]
    monkeypatch.setenv("JAVA_HOME", "/no/such/java")
    done = outbox(changed(file, engine="spark"), "check", "--json")
    assert done.returncode == 1
    engine = [row for row in json.loads(done.stdout)["findings"] if "engine" in row["part"]]
    assert [(row["subject"], row["level"]) for row in engine] == [("Java", "error")]
    assert "/no/such/java" in engine[0]["message"]
    assert "engine: inline" in engine[0]["cure"]


def test_run_harvests_tells_what_happens_and_leaves_when_told(
    file: Path, running: subprocess.Popen[str], postgres_dsn: str, topic: str
):
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute(INSERT, (topic, 500))
    log = wait_for(running, "500 purged in all")
    line = r"INFO    outbox\.run \[.+\] [\d,]+ records/s over \d\.\d s; 500 purged in all"
    assert re.search(line, log)
    status: dict[str, Any] = {}

    def heard() -> bool:
        status.update(json.loads(told(file, "status", "--json")))
        purged: int = status["total"]["purged_total"]
        return purged == 500 and not any(lane["silent"] for lane in status["lanes"])

    until(heard)  # the lanes' last heartbeats reach the fence
    assert status["backlog"]["records"] == 0
    assert (token := status["leader"]["token"]) > 0
    assert [lane["lane"] for lane in status["lanes"]] == [0, 1]
    assert f"fence token {token}" in told(file, "status")

    running.send_signal(signal.SIGTERM)
    _, rest = running.communicate(timeout=60)
    assert running.returncode == 0
    assert "stopping: draining what is in flight" in rest
    assert "leader revoked: handed over" in rest
    assert rest.splitlines()[-1].endswith("stopped")
    assert json.loads(told(file, "status", "--json"))["leader"]["left"]
    until(lambda: "nobody leads: the last who did" in outbox(file, "health").stdout)


REAPER = Path(__file__).parents[2] / "tests" / "goharvest" / "reaper.yaml"
REAPER_DDL = """
CREATE TABLE IF NOT EXISTS outbox (
  id                  BIGSERIAL PRIMARY KEY,
  create_time         TIMESTAMP WITH TIME ZONE NOT NULL,
  kafka_topic         VARCHAR(249) NOT NULL,
  kafka_key           VARCHAR(100) NOT NULL,
  kafka_value         VARCHAR(10000),
  kafka_header_keys   TEXT[] NOT NULL,
  kafka_header_values TEXT[] NOT NULL,
  leader_id           UUID
)
"""


def test_goharvests_file_runs_with_its_own_table(
    tmp_path: Path, postgres_dsn: str, kafka_bootstrap: str, topic: str
):
    file = tmp_path / "reaper.yaml"
    text = REAPER.read_text().replace("localhost:9092", kafka_bootstrap)
    text = text.replace("my-app-name", f"group-{topic}")
    file.write_text(re.sub("dataSource: .* sslmode", f"dataSource: {postgres_dsn} sslmode", text))
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute(REAPER_DDL)
        connection.execute(INSERT, (topic, 300))
    assert told(file, "init").splitlines() == [f"created table {table}" for table in TABLES[1:]]
    process = subprocess.Popen(
        [OUTBOX, "run", "-f", str(file), "--engine", "inline"], stderr=subprocess.PIPE, text=True
    )
    try:
        log = wait_for(process, "300 purged in all")
        assert " DEBUG " in log
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()
    assert json.loads(told(file, "status", "--json"))["backlog"]["records"] == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_stops_hard(
    running: subprocess.Popen[str], number: int, code: int, postgres_dsn: str, topic: str
):
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute(INSERT, (topic, 500))
    wait_for(running, "records/s over")
    with psycopg.connect(postgres_dsn) as connection:
        # A lane waits for the table, so the first signal's hand-over takes long.
        connection.execute("LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE")
        until(lambda: connection.execute(HANGING).fetchone() != (0,))
        running.send_signal(number)
        wait_for(running, "stopping: draining")  # two signals that come at once would be one
        assert running.poll() is None
        running.send_signal(number)
        running.communicate(timeout=60)
        assert running.returncode == code


def test_a_first_signal_is_obeyed_in_time_whatever_hangs(running: subprocess.Popen[str], postgres_dsn: str):
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute("LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE")
        until(lambda: (connection.execute(HANGING).fetchone() or (0,)) >= (2,))  # the next mark of each lane
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=60)
        assert running.returncode == 0


def test_a_signal_during_the_start_is_obeyed_at_once(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    told(file, "init")
    spark = tmp_path / "bin" / "spark-submit"  # a JVM that never gets ready, and ends with its standard input
    spark.parent.mkdir()
    spark.write_text("#!/bin/sh\nexec cat > /dev/null\n")
    spark.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    process = subprocess.Popen(
        [OUTBOX, "run", "-f", str(changed(file, engine="spark"))], stderr=subprocess.PIPE, text=True
    )
    wait_for(process, "] outbox ")
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "stopping before the start is complete" in rest


def test_status_before_anything_was_ever_harvested(file: Path):
    told(file, "init")
    assert json.loads(told(file, "status", "--json"))["leader"] is None
    assert "nobody has ever led" in told(file, "status")


def test_status_watches_until_it_is_told_to_stop(file: Path):
    told(file, "init")
    command = [OUTBOX, "status", "--json", "--watch", "--interval", "50ms", "-f", str(file)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    looks = [json.loads(process.stdout.readline()) for _ in range(3)]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert [look["outbox"] for look in looks] == ["outbox"] * 3


def test_pump_writes_as_an_application_would(file: Path, postgres_dsn: str, topic: str):
    told(file, "init")
    arguments = ("--records", "45", "--keys", "3", "--topic", topic, "--value-size", "30", "--seed", "1")
    done = json.loads(told(file, "pump", *arguments, "--json"))
    assert done["records"] == 45
    assert "stashed 5 records" in told(
        file, "pump", "--records", "5", "--blank", "--topic", topic, "--batch", "2"
    )
    with psycopg.connect(postgres_dsn) as connection:
        rows = connection.execute(ROWS).fetchall()
    assert {row[0] for row in rows} == {topic}
    assert {row[1] for row in rows[:45]} == {"key-0", "key-1", "key-2"}
    assert {len(row[2]) for row in rows[:45]} == {30}
    assert [row[2] for row in rows[45:]] == [None] * 5
    assert [row[3:5] for row in rows[:45]] == [(["Seq"], [str(number)]) for number in range(45)]
    assert len({row[5] for row in rows[:45]}) == 3  # transactions of 20


class Time:
    """Passes only while somebody waits, and is lost for a while once; no signal arrives."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waits: list[float] = []
        self.requested = self

    def monotonic(self) -> float:
        return self.now

    def is_set(self) -> bool:
        return False

    def wait(self, seconds: float) -> None:
        self.waits.append(round(seconds, 3))
        self.now += seconds + (0.05 if len(self.waits) == 5 else 0)


def test_pump_keeps_its_pace_and_makes_up_for_a_delay(
    file: Path, topic: str, monkeypatch: pytest.MonkeyPatch
):
    told(file, "init")
    passing = Time()
    monkeypatch.setattr(pump, "time", passing)
    monkeypatch.setattr(pump, "StopSignals", lambda: nullcontext(passing))
    done = json.loads(
        told(file, "pump", "--records", "20", "--interval", "20", "--batch", "1", "--topic", topic, "--json")
    )
    assert (done["records"], done["seconds"]) == (20, 0.4)
    assert passing.waits == [*[0.02] * 5, 0, 0, 0.01, *[0.02] * 12]


def test_pump_says_what_the_database_refuses(file: Path):
    done = outbox(file, "pump", "--records", "1")
    assert done.returncode == 1
    assert re.fullmatch(
        r'error: cannot write to the outbox: relation "outbox" does not exist.*', done.stderr, re.DOTALL
    )


def test_a_database_that_is_down(file: Path):
    down = changed(file, dataSource=f"host=127.0.0.1 port={NOWHERE} user=postgres password=hunter2 dbname=x")
    for command in ("run", "status", "init"):
        done = program(down, command)  # here, threads of other tests might log beside it
        assert done.returncode == 69
        assert "Connection refused" in done.stderr
        assert "hunter2" not in done.stderr
        assert "Traceback" not in done.stderr
    # Python 3.11 may fail if a check and pytest, which rewrites what is imported, parse at the same time.
    done = program(down, "check")
    assert done.returncode == 1
    assert "hunter2" not in done.stdout + done.stderr


def test_a_broker_that_is_down(file: Path, monkeypatch: pytest.MonkeyPatch):
    told(file, "init")
    monkeypatch.setattr("outbox_kafka.topics._TIMEOUT", 1.0)
    down = changed(file, baseKafkaConfig={"bootstrap.servers": f"127.0.0.1:{NOWHERE}"})
    done = outbox(down, "run")
    assert done.returncode == 69
    assert re.search(r"^error: .*127\.0\.0\.1", done.stderr, re.MULTILINE)
