"""Every example runs unchanged against real servers."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
from confluent_kafka import Consumer
from outbox_api.base.finding import Level
from outbox_core.config import load
from outbox_core.config.consistency import check_settings
from outbox_core.settings import Limits
from outbox_core.settings.logs import LogLevel
from outbox_servers.services.external import Kafka

EXAMPLES = Path(__file__).parent.parent / "examples"
CUSTOMERS = ("ada", "bob", "cleo")
SECONDS = 120.0
CLOCK_STEP = 1.5
"""Seconds by which the clock of a virtual machine may step back, and so the times of messages."""


@contextmanager
def running(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Runs an example, which SIGINT ends."""
    with subprocess.Popen(
        [sys.executable, str(EXAMPLES / program), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def take_orders(data_source: str, number: int) -> list[str]:
    """Runs the application; returns its lines."""
    with running("orders/app.py", data_source, "--orders", str(number)) as process:
        text = process.communicate(timeout=60)[0]
    assert process.returncode == 0, text
    return text.splitlines()


def receive(bootstrap: str, topic: str, since: float, number: int) -> list[tuple[str, dict[str, object]]]:
    """Returns key and value of the first messages of our customers in a topic after a time, or just before.

    Other tests run the shops of the examples, which use the same topic, with customers of their own.
    """
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": uuid4().hex, "auto.offset.reset": "earliest"}
    )
    received: list[tuple[str, dict[str, object]]] = []
    deadline = time.monotonic() + SECONDS
    try:
        consumer.subscribe([topic])
        while len(received) < number and time.monotonic() < deadline:
            received += [
                ((message.key() or b"").decode(), json.loads(message.value() or b""))
                for message in consumer.consume(100, 0.2)
                if message.error() is None
                and message.timestamp()[1] >= (since - CLOCK_STEP) * 1000
                and (message.key() or b"").decode() in CUSTOMERS
            ]
    finally:
        consumer.close()
    return received


def test_the_application_and_the_library_move_orders(postgres_dsn: str, kafka_broker: Kafka) -> None:
    with running("library.py", postgres_dsn, kafka_broker.bootstrap) as library:
        assert library.stdout
        first = library.stdout.readline()
        assert re.fullmatch(r"leading as [0-9a-f-]{36}, fence token \d+\n", first), (
            first + library.stdout.read()
        )
        began = time.time()
        lines = take_orders(postgres_dsn, 40)
        placed = [line.split() for line in lines if line.startswith("order ")]
        assert lines[-1] == f"{len(placed)} placed, {40 - len(placed)} declined"
        received = receive(kafka_broker.bootstrap, "orders", began, len(placed))
        while "records/s" not in (line := library.stdout.readline()):
            assert line, "the library has ended"
        library.send_signal(signal.SIGINT)
        rest = library.communicate(timeout=60)[0]
    assert library.returncode == 0, rest
    assert "stopping\n" in rest
    assert "handed over\n" in rest
    # "order 7: ada has tea"; a declined order leaves a gap and no message.
    expected = {int(number.rstrip(":")): (customer, goods) for _, number, customer, _, goods in placed}
    assert {value["order"]: (key, value["goods"]) for key, value in received} == expected
    for customer in CUSTOMERS:
        orders = [value["order"] for key, value in received if key == customer]
        assert orders == sorted(orders, key=lambda order: int(str(order)))
    with psycopg.connect(postgres_dsn) as connection:
        assert connection.execute("SELECT count(*) FROM outbox").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM orders").fetchone() == (len(placed),)


def test_the_annotated_file_says_what_it_seems_to() -> None:
    variables = {"DB_PASSWORD": "a secret", "KAFKA": "kafka:9092"}
    settings = load(EXAMPLES / "outbox.yaml", variables=variables)
    harvest = settings.harvest
    assert harvest.dialect.options.data_source.startswith("host=localhost port=5432 user=orders")
    assert "a secret" in harvest.dialect.options.data_source
    assert harvest.elector.options.session_timeout == 10
    assert harvest.publisher.options.kafka["partitioner"] == "murmur2_random"
    assert harvest.engine.options.settings == {"spark.driver.memory": "512m"}
    assert {finding.level for finding in check_settings(harvest)} == {Level.OK}
    for choice in (harvest.dialect, harvest.elector, harvest.affinity, harvest.publisher):
        choice.create()


def test_what_is_commented_out_in_it_can_be_used(tmp_path: Path) -> None:
    text, changes = re.subn(
        r"^( +)# (?=[\w.]+: )", r"\1", (EXAMPLES / "outbox.yaml").read_text(), flags=re.MULTILINE
    )
    assert changes > 8
    path = tmp_path / "outbox.yaml"
    path.write_text(text)
    harvest = load(path, variables={"DB_PASSWORD": "", "KAFKA_PASSWORD": "a secret"}).harvest
    assert harvest.engine.options.master == "spark://host:7077"
    assert harvest.publisher.options.kafka["sasl.password"] == "a secret"
    # The values in the file are the defaults, as the file says.
    defaults = Limits()
    for name in (
        "min_poll_interval",
        "heartbeat_timeout",
        "queue_timeout",
        "drain_interval",
    ):
        assert getattr(harvest.limits, name) == getattr(defaults, name)


def test_goharvests_file_is_read_as_it_is() -> None:
    settings = load(EXAMPLES / "reaper.yaml", variables={})
    assert settings.logging.level is LogLevel.INFO
    assert settings.harvest.limits.min_poll_interval == 0.5
    assert settings.harvest.elector.options.leader_group_id == "billing-api"
    assert {finding.level for finding in check_settings(settings.harvest)} == {Level.OK}
