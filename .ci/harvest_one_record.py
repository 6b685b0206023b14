"""Harvests a record, stashed with plain SQL, with an installed ``outbox`` and all defaults but the engine."""

from __future__ import annotations

import json
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psycopg
from confluent_kafka import Consumer
from outbox_api import Record, Stasher
from outbox_servers.services import KafkaBroker, PostgresServer

INSERT = """INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys,
            kafka_header_values) VALUES (now(), 'orders', 'k', 'hello', '{h}', '{v}')"""


@contextmanager
def postgres() -> Iterator[tuple[dict[str, Any], Callable[[], None]]]:
    """Yields the settings of a database, and what writes the record."""
    with PostgresServer() as server:

        def stash() -> None:
            with psycopg.connect(server.dsn) as connection:
                connection.execute(INSERT)

        yield {"dataSource": server.dsn}, stash


@contextmanager
def sqlite() -> Iterator[tuple[dict[str, Any], Callable[[], None]]]:
    """Does the same with a file."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder, "shop.db"))

        def stash() -> None:
            with closing(sqlite3.connect(file)) as connection, connection:
                record = Record("orders", key="k", value="hello", headers=(("h", "v"),))
                Stasher(dialect="sqlite").stash(connection, record)

        yield {"dataSource": file, "dialect": "sqlite", "elector": "static"}, stash


def main(outbox: str, engine: str = "spark", *, page: bool = False, database: Any = postgres) -> None:
    with database() as (found, stash), KafkaBroker() as kafka, tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "outbox.yaml"
        harvest = {**found, "baseKafkaConfig": {"bootstrap.servers": kafka.bootstrap}, "engine": engine}
        with socket.create_server(("127.0.0.1", 0)) as free:
            listen = f"127.0.0.1:{free.getsockname()[1]}"
        settings.write_text(
            json.dumps({"harvest": harvest, **({"http": {"listen": listen}} if page else {})})
        )
        subprocess.run([outbox, "init", "-f", str(settings), "--topic", "orders"], check=True, timeout=120)
        subprocess.run([outbox, "check", "-f", str(settings)], check=True, timeout=120)
        stash()
        harvester = subprocess.Popen([outbox, "run", "-f", str(settings)])
        try:
            message = consume(kafka.bootstrap)
            if page:
                look(f"http://{listen}/")
        finally:
            harvester.terminate()
            code = harvester.wait(30)
        got = (message.key(), message.value(), message.headers())
        if got != (b"k", b"hello", [("h", b"v")]) or code != 0:
            sys.exit(f"got {got}, and the harvester ended with {code}")
    print("1 record harvested as it was written; the harvester left with exit code 0")


def look(address: str) -> None:
    """Asks for the page."""
    with urlopen(address, timeout=30) as answer:
        if b"</html>" not in answer.read():
            sys.exit(f"{address} is no page")
    print("the page is served")


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
