"""Source, sinks and listener through a server of Spark Connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Consumer
from outbox_spark.jvm import java_home

from .sink_trial import created

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = 200
DRIVER = Path(__file__).with_name("connect_driver.py")


def test_what_an_outbox_has_goes_through_connect_once(
    postgres_dsn: str, kafka_bootstrap: str, tmp_path: Path
) -> None:
    first = created(postgres_dsn)
    name = f"connect_{uuid4().hex[:8]}"
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    second = created(psycopg.conninfo.make_conninfo(postgres_dsn, dbname=name))
    first.stash(range(ROWS))
    given = {
        "folder": str(tmp_path),
        "first": first.options,
        "second": second.options,
        "kafka": {"kafka.bootstrap.servers": kafka_bootstrap, "topic": name},
    }
    environment = {**os.environ, "JAVA_HOME": str(java_home()), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, str(DRIVER), json.dumps(given)],
        env=environment, capture_output=True, text=True, check=False, timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["waiting"] == ROWS
    assert said["session"] == "pyspark.sql.connect.session"
    assert said["purged"] == 2 * ROWS
    consumer = Consumer(
        {"bootstrap.servers": kafka_bootstrap, "group.id": name, "isolation.level": "read_committed",
         "auto.offset.reset": "earliest"}
    )  # fmt: skip
    consumer.subscribe([name])
    found: list[int] = []
    while len(found) < ROWS and (message := consumer.poll(20)) is not None:
        found.append(int(message.value() or b""))
    rest = consumer.poll(2)
    consumer.close()
    assert sorted(found) == list(range(ROWS))
    assert rest is None
