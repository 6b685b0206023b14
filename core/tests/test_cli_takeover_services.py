"""`outbox takeover` on a real outbox: the records of another cluster are taken at once, until it is ended."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from .cli_runner import configure, harvester, outbox, told, until, wait_for

INSERT = """
    INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_value,
                        kafka_header_keys, kafka_header_values, cluster_id)
    SELECT clock_timestamp(), %s, 'key-' || i %% 10, 'value ' || i, '{}', '{}', %s
    FROM generate_series(1, %s) AS i
"""


@pytest.fixture(params=["at-least-once", pytest.param("exactly-once", marks=pytest.mark.slow)])
def file(tmp_path: Path, postgres_dsn: str, kafka_bootstrap: str, request: pytest.FixtureRequest) -> Path:
    affinity = {
        "driver": "cluster",
        "clusterID": 1,
        "clustersCount": 3,
        "maximumDelay": "1h",
        "replicas": {"2": postgres_dsn},
    }
    path = configure(tmp_path, postgres_dsn, kafka_bootstrap, affinity=affinity, delivery=request.param)
    told(path, "init")
    return path


def clusters(file: Path) -> dict[int, dict[str, Any]]:
    found = json.loads(told(file, "status", "--json"))["clusters"]
    return {each["cluster"]: each for each in found}


def waiting(file: Path) -> dict[int, int]:
    return {cluster: each["records"] for cluster, each in clusters(file).items()}


def write(dsn: str, topic: str, **records: int) -> None:
    with closing(psycopg.connect(dsn, autocommit=True)) as connection:
        for cluster, count in records.items():
            connection.execute(INSERT, (topic, int(cluster.removeprefix("of_")), count))


def test_the_records_of_another_cluster_are_taken_once_an_operator_says_so(
    file: Path, postgres_dsn: str, topic: str
):
    write(postgres_dsn, topic, of_1=300, of_2=400, of_3=50)
    with harvester(file) as running:
        until(lambda: waiting(file) == {1: 0, 2: 400, 3: 50})
        begun = json.loads(told(file, "takeover", "--from", "2", "--reason", "moving", "--yes", "--json"))
        assert (begun["began"], begun["changed"]) == (2, True)
        assert begun["token"] > 0
        seen = wait_for(running, "takeover began")
        assert "leader fenced" in seen
        taken = "takes over records of cluster 2, as it was told to"
        assert taken in seen or wait_for(running, taken)
        until(lambda: waiting(file) == {1: 0, 2: 0, 3: 50})
        until(lambda: clusters(file)[2]["taken_over"] >= 400)
        found = clusters(file)
        assert found[2]["takeover"]["reason"] == "moving"
        assert found[2]["taken_over_seconds_ago"] < 60
        assert (found[1]["taken_over"], found[3]["taken_over"]) == (0, 0)
        health = json.loads(outbox(file, "health", "--json", "--patience", "30s").stdout)
        assert "taken-over" not in [each["code"] for each in health["problems"]]
        assert [each["code"] for each in health["remarks"]] == ["deliberate-takeover"]
        told(file, "takeover", "--end", "2", "--yes")
        assert "leader acquired" in wait_for(running, "leader acquired")
        write(postgres_dsn, topic, of_1=10, of_2=20)
        until(lambda: waiting(file) == {1: 0, 2: 20, 3: 50})
        assert json.loads(told(file, "takeover", "--json"))["takeovers"] == []
        noted = json.loads(told(file, "journal", "--json"))["entries"]
        assert [(each["verb"], each["subject"], each["reason"]) for each in noted] == [
            ("end-takeover", "cluster 2", ""),
            ("take-over", "cluster 2", "moving"),
        ]
        assert noted[1]["outcome"] == f"began, token {begun['token']}"


def test_the_clock_of_a_replica_is_compared(file: Path):
    found = json.loads(outbox(file, "check", "--json").stdout)["findings"]
    [clock] = [each for each in found if each["part"] == "clock of cluster 2"]
    assert clock["level"] == "ok"
    assert "agrees with this one's" in clock["message"]
