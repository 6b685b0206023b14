"""Commands of operators on a real outbox: parked keys, health, and an audit at the end."""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from outbox_core.cli import main

from .cli_runner import NOWHERE, changed, configure, frozen, harvester, outbox, told, until

STASH = """
    INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_value,
                        kafka_header_keys, kafka_header_values)
    VALUES (clock_timestamp(), %s, %s, 'value', %s, %s)
"""
HEALTH = ("health", "--patience", "30s")
"""A busy machine may take longer than the default to load a driver and to connect."""
REPAIR = "UPDATE outbox SET kafka_header_values = '{0}' WHERE id = %s"


@pytest.fixture
def file(tmp_path: Path, postgres_dsn: str, kafka_bootstrap: str) -> Path:
    """A configuration for a new database and the session's broker, without JVM and election."""
    path = configure(tmp_path, postgres_dsn, kafka_bootstrap, failures={"parkAfter": 1})
    told(path, "init")
    return path


@pytest.fixture
def running(file: Path) -> Iterator[subprocess.Popen[str]]:
    with harvester(file) as process:
        yield process


def stash(dsn: str, topic: str, key: str, number: int, *, sound: bool = True) -> None:
    """Commits a record; an invalid one has no value for its header, so it cannot be sent."""
    with psycopg.connect(dsn) as connection:
        connection.execute(STASH, (topic, key, ["Seq"], [str(number)] if sound else []))


def letters(file: Path, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(told(file, "parked", "list", "--json", *arguments))["letters"]
    return found


def rows(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        found = connection.execute("SELECT count(*) FROM outbox").fetchone()
    assert found is not None
    return int(found[0])


def codes(done: "subprocess.CompletedProcess[str]") -> list[str]:
    return [line.partition(":")[0] for line in done.stdout.splitlines()]


def test_a_parked_key_is_seen_repaired_and_retried_and_nothing_is_missing(
    file: Path, running: "subprocess.Popen[str]", postgres_dsn: str, topic: str, tmp_path: Path
):
    ledger = tmp_path / "ledger"
    ledger.write_text('["bad", 0]\n["bad", 1]\n["good", 0]\n')
    stash(postgres_dsn, topic, "bad", 0, sound=False)
    stash(postgres_dsn, topic, "bad", 1)
    stash(postgres_dsn, topic, "good", 0)
    until(lambda: letters(file) != [] and rows(postgres_dsn) == 2)
    [found] = letters(file)
    assert (found["key"], found["topic"], found["attempts"]) == ("bad", topic, 1)
    shown = json.loads(told(file, "parked", "show", "bad", "--json"))
    assert (shown["waiting"], shown["letters"][0]["value"]) == (2, "value")
    assert shown["letters"][0]["fault"] is not None or "header" in shown["letters"][0]["reason"]
    status = json.loads(told(file, "status", "--json"))
    assert status["parked"]["keys"] == 1
    assert status["parked"]["oldest_seconds"] > 0
    assert "1 key, the first for" in told(file, "status")
    unhealthy = outbox(file, *HEALTH)
    assert (unhealthy.returncode, codes(unhealthy)) == (1, ["parked-keys"])

    with psycopg.connect(postgres_dsn) as connection:
        connection.execute(REPAIR, (found["id"],))
    tried = outbox(file, "parked", "retry", "bad", "--dry-run")
    assert "the row as it is now" in tried.stderr
    assert "Seq: 0" in tried.stderr  # the header, which the letter's copy lacks
    assert "fault" not in tried.stderr
    assert "would change" in told(file, "parked", "retry", "bad", "--dry-run")
    assert [each["id"] for each in letters(file)] == [found["id"]]
    assert "changed" in told(file, "parked", "retry", "bad")
    until(lambda: rows(postgres_dsn) == 0)
    assert letters(file) == []
    told(file, *HEALTH)
    audit = json.loads(told(file, "audit", "--ledger", str(ledger), "--topic", topic, "--json"))
    assert audit["good"] is True
    assert audit["audits"][0]["delivered"] == 3


def test_a_parked_record_is_skipped_and_redriven(
    file: Path, running: "subprocess.Popen[str]", postgres_dsn: str, topic: str
):
    stash(postgres_dsn, topic, "bad", 0, sound=False)
    stash(postgres_dsn, topic, "bad", 1)
    until(lambda: letters(file) != [])
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute(REPAIR, (letters(file)[0]["id"],))
    refused = outbox(file, "parked", "skip", "bad")
    assert (refused.returncode, len(letters(file))) == (2, 1)
    told(file, "parked", "skip", "bad", "--yes")
    until(lambda: rows(postgres_dsn) == 0)
    assert letters(file) == []
    assert outbox(file, "parked", "retry", "bad").returncode == 1
    assert [each["status"] for each in letters(file, "--skipped")] == ["skipped"]
    told(file, *HEALTH)
    told(file, "parked", "redrive", "--all", "--yes")
    until(lambda: rows(postgres_dsn) == 0)
    assert letters(file, "--skipped") == []
    entries = json.loads(told(file, "journal", "--json"))["entries"]
    assert [(each["verb"], each["outcome"]) for each in entries] == [
        ("redrive", "1 changed"),
        ("skip", "1 changed"),
    ]


def test_health_without_a_leader(file: Path):
    done = outbox(file, *HEALTH)
    assert (done.returncode, codes(done)) == (1, ["no-leader"])


def problems(file: Path, *health: str) -> list[str]:
    data = json.loads(outbox(file, *health).stdout)
    assert data["healthy"] is not bool(data["problems"])
    return [problem["code"] for problem in data["problems"]]


def test_health_of_old_records(file: Path, running: "subprocess.Popen[str]", postgres_dsn: str, topic: str):
    told(file, *HEALTH)
    stash(postgres_dsn, topic, "bad", 0, sound=False)
    until(lambda: letters(file) != [])
    time.sleep(0.2)
    tolerant = (*HEALTH, "--oldest", "100ms", "--parked", "1", "--silence", "1000", "--json")
    assert problems(file, *tolerant) == [], "a parked record waits for a person"
    with frozen(running):
        stash(postgres_dsn, topic, "good", 0, sound=True)
        until(lambda: problems(file, *tolerant) == ["old-records"])


def test_health_and_status_name_who_keeps_dead_rows(
    file: Path, running: "subprocess.Popen[str]", postgres_dsn: str
):
    with (
        psycopg.connect(postgres_dsn, application_name="report") as holder,
        psycopg.connect(postgres_dsn, autocommit=True) as application,
    ):
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        holder.execute("SELECT 1 FROM outbox")
        # What was harvested and cannot be removed; in one transaction, so that it takes no time here.
        application.execute("BEGIN")
        application.execute(
            "INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_header_keys, kafka_header_values)"
            " SELECT now(), 't', 'k', '{}', '{}' FROM generate_series(1, 120000)"
        )
        application.execute("DELETE FROM outbox; COMMIT")
        application.execute("SELECT pg_stat_force_next_flush()")  # the server counts them now, not in 10 s
        owner = f"process {holder.info.backend_pid} (report of user postgres)"
        status: dict[str, Any] = {}

        def counted() -> bool:
            status.update(json.loads(told(file, "status", "--json"))["upkeep"])
            return int(status["dead"]) > 100_000

        until(counted)
        assert status["snapshot"]["owner"] == owner
        assert status["snapshot"]["seconds"] > 0
        assert "120,000 dead rows" in told(file, "status")
        done = outbox(file, *HEALTH, "--snapshot", "1ms")
        assert (done.returncode, codes(done)) == (1, ["old-snapshot"])
        assert owner in done.stdout
        told(file, *HEALTH, "--snapshot", "1ms", "--dead-rows", "120000")
    # A mark of the harvester may last a millisecond, too.
    until(lambda: outbox(file, *HEALTH, "--snapshot", "1ms").returncode == 0)


def test_health_of_services_that_are_away(file: Path, running: "subprocess.Popen[str]"):
    source = f"host=127.0.0.1 port={NOWHERE} user=postgres password=hunter2 dbname=x"
    done = outbox(changed(file, dataSource=source), *HEALTH)
    assert (done.returncode, codes(done)) == (69, ["database-unreachable"])
    assert "hunter2" not in done.stdout + done.stderr
    broker = {"bootstrap.servers": f"127.0.0.1:{NOWHERE}"}
    done = outbox(changed(file, baseKafkaConfig=broker), "health", "--patience", "1s")
    assert done.returncode == 69
    assert "broker-unreachable" in codes(done), "the database may be late as well on a busy machine"


def test_health_of_a_database_without_the_tables(file: Path, postgres_dsn: str):
    done = outbox(changed(file, outboxTable="nowhere.outbox"), *HEALTH)
    assert (done.returncode, codes(done)) == (1, ["database-refuses"])


def test_what_was_pumped_is_audited(
    file: Path, running: "subprocess.Popen[str]", postgres_dsn: str, topic: str, tmp_path: Path
):
    ledger = tmp_path / "ledger"
    pump = ("pump", "--topic", topic, "--ledger", str(ledger))
    told(file, *pump, "--records", "70")
    told(file, *pump, "--records", "30")
    lines = [json.loads(line) for line in ledger.read_text().splitlines()]
    assert [line[1:] for line in lines] == [[number, topic] for number in range(100)]
    until(lambda: rows(postgres_dsn) == 0)
    out = told(file, "audit", "--ledger", str(ledger))
    assert "All 100 records arrived, in order for every key, and nothing else did." in out

    assert "exactly once" in told(file, "audit", "--ledger", str(ledger), "--exactly-once")
    with psycopg.connect(postgres_dsn) as connection:
        key, number, _ = lines[-1]
        connection.execute(STASH, (topic, key, ["Seq"], [str(number)]))
    until(lambda: rows(postgres_dsn) == 0)
    told(file, "audit", "--ledger", str(ledger))
    done = outbox(file, "audit", "--ledger", str(ledger), "--exactly-once", "--json")
    [twice] = json.loads(done.stdout)["audits"]
    assert (done.returncode, twice["good"], twice["duplicates"]) == (1, False, 1)

    lacking = tmp_path / "lacking"
    lacking.write_text("".join(ledger.read_text().splitlines(keepends=True)[:-1]))
    done = outbox(file, "audit", "--ledger", str(lacking))
    assert done.returncode == 1
    assert re.search(r"foreign +2\b", done.stdout)
    assert f"'{key}' {number}" in done.stdout


def test_an_audit_that_cannot_be_made(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    ledger = tmp_path / "ledger"
    with pytest.raises(SystemExit) as caught:
        main(["audit", "-f", str(file), "--ledger", str(ledger)])
    assert caught.value.code == 1
    assert re.search(r"cannot read ledger .*: No such file or directory", capsys.readouterr().err)
    ledger.write_text("")
    with pytest.raises(SystemExit):
        main(["audit", "-f", str(file), "--ledger", str(ledger)])
    assert "names no topic" in capsys.readouterr().err
