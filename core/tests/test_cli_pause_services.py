"""`outbox pause` and `outbox resume` on a real outbox: a topic waits, and other topics go on."""

import json
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from .cli_runner import configure, harvester, outbox, told, until

INSERT = """
    INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_value,
                        kafka_header_keys, kafka_header_values)
    SELECT clock_timestamp(), %s, 'key-' || i %% 10, 'value ' || i, '{}', '{}'
    FROM generate_series(1, %s) AS i
"""


@pytest.fixture(params=["at-least-once", "exactly-once"])
def file(tmp_path: Path, postgres_dsn: str, kafka_bootstrap: str, topic: str, request: Any) -> Path:
    path = configure(tmp_path, postgres_dsn, kafka_bootstrap, delivery=request.param)
    told(path, "init", "-t", topic, "-t", f"{topic}-other")
    return path


def write(dsn: str, topic: str, records: int = 100) -> None:
    with closing(psycopg.connect(dsn, autocommit=True)) as connection:
        connection.execute(INSERT, (topic, records))


def waiting(dsn: str) -> dict[str, int]:
    with closing(psycopg.connect(dsn, autocommit=True)) as connection:
        return Counter(topic for (topic,) in connection.execute("SELECT kafka_topic FROM outbox"))


def pauses(file: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(told(file, "status", "--json"))["pauses"]
    return found


def paused(file: Path, *more: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(told(file, "pause", "--yes", "--json", *more))
    return found


def test_a_topic_waits_until_it_is_resumed_and_others_go_on(file: Path, postgres_dsn: str, topic: str):
    other = f"{topic}-other"
    with harvester(file):
        write(postgres_dsn, topic)
        until(lambda: not waiting(postgres_dsn))
        done = paused(file, "--topic", topic, "--reason", "partitions are added")
        assert (done["topic"], done["in_effect"], done["led"], done["open"]) == (topic, True, True, [])
        for _ in range(3):
            write(postgres_dsn, topic)
            write(postgres_dsn, other)
            until(lambda: other not in waiting(postgres_dsn))
        assert waiting(postgres_dsn) == {topic: 300}
        (found,) = pauses(file)
        assert (found["topic"], found["records"], found["exact"]) == (topic, 300, True)
        assert (found["reason"], found["until"], found["in_effect"]) == ("partitions are added", None, True)
        assert "paused: " in told(file, "health", "--patience", "30s")
        assert topic in told(file, "pause", "--list")
        assert topic in told(file, "status")
        assert "was paused for" in told(file, "resume", "--topic", topic)
        until(lambda: not waiting(postgres_dsn))
        assert pauses(file) == []
        assert "was not paused" in told(file, "resume", "--topic", topic)


def test_the_next_leader_heeds_a_pause_and_it_ends_by_itself(file: Path, postgres_dsn: str, topic: str):
    with harvester(file):
        assert paused(file, "--for", "6s")["in_effect"]
        write(postgres_dsn, topic)
    done = paused(file, "--topic", topic)
    with harvester(file):
        until(lambda: all(each["in_effect"] for each in pauses(file)))
        assert waiting(postgres_dsn) == {topic: 100}
        write(postgres_dsn, f"{topic}-other")
        until(lambda: waiting(postgres_dsn) == {topic: 100})
        assert [each["topic"] for each in pauses(file)] == [topic]
        assert pauses(file)[0]["since"] == done["since"]
        told(file, "resume", "--topic", topic)
        until(lambda: not waiting(postgres_dsn))


def test_without_a_leader_a_pause_is_in_effect_at_once(file: Path, postgres_dsn: str):
    done = paused(file, "--until", "2999-01-01")
    assert (done["topic"], done["in_effect"], done["led"]) == (None, True, False)
    assert done["until"].startswith("2999-01-01")
    refused = outbox(file, "pause", "--yes", "--until", "2000-01-01")
    assert refused.returncode == 2
    assert "passed" in refused.stderr
