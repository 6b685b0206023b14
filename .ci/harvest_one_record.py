"""Harvests a record, written with plain SQL, with an installed ``outbox`` and all defaults but the engine."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg
from confluent_kafka import Consumer
from outbox_servers.services import KafkaBroker, PostgresServer

INSERT = """INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys,
            kafka_header_values) VALUES (now(), 'orders', 'k', 'hello', '{h}', '{v}')"""


def main(outbox: str, engine: str = "spark") -> None:
    with PostgresServer() as postgres, KafkaBroker() as kafka, tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "outbox.yaml"
        servers = {"bootstrap.servers": kafka.bootstrap}
        harvest = {"dataSource": postgres.dsn, "baseKafkaConfig": servers, "engine": engine}
        settings.write_text(json.dumps({"harvest": harvest}))
        subprocess.run([outbox, "init", "-f", str(settings), "--topic", "orders"], check=True, timeout=120)
        with psycopg.connect(postgres.dsn) as connection:
            connection.execute(INSERT)
        harvester = subprocess.Popen([outbox, "run", "-f", str(settings)])
        try:
            message = consume(kafka.bootstrap)
        finally:
            harvester.terminate()
            code = harvester.wait(30)
        found = (message.key(), message.value(), message.headers())
        if found != (b"k", b"hello", [("h", b"v")]) or code != 0:
            sys.exit(f"got {found}, and the harvester ended with {code}")
    print("1 record harvested as it was written; the harvester left with exit code 0")


def consume(bootstrap: str):  # noqa: ANN201 - the client has no types
    """Returns the first message of the topic, within two minutes."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "audit", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    try:
        for _ in range(120):
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                return message
    finally:
        consumer.close()
    sys.exit("nothing arrived within two minutes")


if __name__ == "__main__":
    main(*sys.argv[1:])
