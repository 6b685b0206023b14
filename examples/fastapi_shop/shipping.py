"""Ships what was ordered: reads the topic, and does what each message says once, in a transaction of its own.

DATABASE_URL=postgresql+psycopg://postgres@localhost/shop KAFKA=localhost:9092 python shipping.py
"""

import json
import os

import psycopg
from confluent_kafka import Consumer, Message
from opentelemetry import trace
from opentelemetry.propagate import extract
from outbox_api.application.inbox import Inbox

PARCELS = "CREATE TABLE parcels (number bigint, customer text)"

inbox = Inbox("shipping")
tracer = trace.get_tracer("shipping")


def create_tables(connection: psycopg.Connection) -> None:
    """Creates the tables of the parcels and of the inbox, if they are missing."""
    with connection.transaction():  # both or none, also if it is killed here
        if connection.execute("SELECT to_regclass('parcels')").fetchone() == (None,):
            for statement in (PARCELS, *inbox.ddl()):
                connection.execute(statement.encode())


def handle(connection: psycopg.Connection, message: Message) -> None:
    """Ships an order, unless that was done already: at least once, a message may come again."""
    headers = {name: bytes(value).decode() for name, value in dict(message.headers() or []).items()}  # type: ignore[arg-type] # bytes
    event = json.loads(message.value() or b"")
    with (
        tracer.start_as_current_span("process orders", extract(headers), trace.SpanKind.CONSUMER),
        connection.transaction(),
    ):
        if inbox.first(connection, str(event["order"])):
            connection.execute("INSERT INTO parcels VALUES (%s, %s)", (event["order"], event["customer"]))


def main() -> None:
    """Handles messages until Ctrl-C."""
    settings = {"bootstrap.servers": os.environ["KAFKA"], "group.id": "shipping", "enable.auto.commit": False}
    consumer = Consumer(settings | {"auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    url = os.environ["DATABASE_URL"].replace("+psycopg", "")
    with psycopg.connect(url, autocommit=True) as connection:
        create_tables(connection)
        while True:
            message = consumer.poll(1.0)
            if message is not None and not message.error():
                handle(connection, message)
                consumer.commit(message=message)


if __name__ == "__main__":
    main()
