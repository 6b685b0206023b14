"""docs/payloads.md does what it says, with a real schema registry; and what it says if something is wrong."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import psycopg
import pydantic
import pytest
from confluent_kafka import Message
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # left out of its types
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from jsonschema import Draft7Validator
from outbox_api import ConfigError, Record, RecordError, Stasher
from outbox_api.application import schemas
from outbox_api.application.schemas import SchemaRegistry
from outbox_api.base.payloads import Serializer
from outbox_core.cli.export import document
from outbox_core.config import configure
from outbox_core.harvest import Harvest
from outbox_servers.services import ApicurioServer, Kafka, free_port

from .harvesters import until
from .topics import ends, messages

pytestmark = pytest.mark.slow  # the registry takes long to start

PAGE = (Path(__file__).parents[1] / "docs" / "payloads.md").read_text("utf-8")
ORDER = """{"type": "record", "name": "Order", "namespace": "shop", "fields": [%s]}"""
ID = '{"name": "id", "type": "long"}'
NOTE = '{"name": "note", "type": "string"}'


@pytest.fixture(scope="module")
def server() -> Iterator[ApicurioServer]:
    """A registry that the tests of this file share."""
    with ApicurioServer() as server:
        yield server


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has clients wait longer: on a busy machine the registry's first answers take seconds."""
    monkeypatch.setattr(schemas, "TIMEOUT", 60.0)


@pytest.fixture
def client(server: ApicurioServer) -> Iterator[SchemaRegistryClient]:
    """Another client of the registry."""
    with SchemaRegistryClient({"url": server.url}) as client:
        yield client


def sections() -> dict[str, str]:
    """Returns title → the Python that stands in a section of the page."""
    parts = re.split(r"^##+ (.*)$", PAGE, flags=re.MULTILINE)
    blocks = [re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE) for text in parts[2::2]]
    return {title: "\n".join(found) for title, found in zip(parts[1::2], blocks, strict=True)}


def harvested(dsn: str, kafka: Kafka, topic: str, number: int) -> list[Message]:
    """Harvests an outbox until a new topic has so many messages, and returns them."""
    settings = {
        "engine": "inline",
        "elector": "static",
        "dataSource": dsn,
        "baseKafkaConfig": {"bootstrap.servers": kafka.bootstrap},
        "topics": [topic],
    }
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(60)
    harvest = Harvest(configure({"harvest": settings}).harvest)
    harvest.start()
    try:
        until(lambda: sum(ends(admin, topic, 1).values()) >= number, f"{number} messages", 60)
    finally:
        harvest.stop()
    return messages(kafka.bootstrap, topic, ends(admin, topic, 1))


def refused(make: Callable[[], Record], connection: psycopg.Connection) -> str:
    """Returns the error of a record that cannot be made; the transaction goes on."""
    with connection.transaction():
        connection.execute("CREATE TEMPORARY TABLE business AS SELECT 1")
        with pytest.raises(RecordError) as error:
            Stasher(bytes_values=True).stash(connection, make())
    assert connection.execute("DROP TABLE business").statusmessage == "DROP TABLE"
    return str(error.value)


def message_class(fields: int) -> Any:
    """Makes what protoc would make of a message with some numbers."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    for number in range(1, fields + 1):
        message.field.add(name=f"n{number}", number=number, type=3, label=1)  # an optional int64
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def test_the_page_does_what_it_says(
    postgres_dsn: str, kafka_broker: Kafka, topic: str, server: ApicurioServer, client: SchemaRegistryClient
) -> None:
    code, names = sections(), dict[str, Any]()
    configure({"harvest": {"dataSource": postgres_dsn}}).harvest.dialect.create().create()

    def run(title: str) -> None:
        text = code[title].replace('"orders"', repr(topic)).replace("http://registry:8081", server.url)
        exec(text, names)

    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        names["connection"] = connection
        for title in ("A model as JSON", "CloudEvents"):
            run(title)
            with connection.transaction():
                names["stasher"].stash(connection, names["record"])
        to_bytes = "ALTER TABLE outbox ALTER kafka_value TYPE bytea USING convert_to(kafka_value, 'UTF8')"
        connection.execute(to_bytes)
        run("A schema registry")
        names["registry"].close()
        run("Refusals at the stash")
        with connection.transaction(), pytest.raises(RecordError, match=r"harvest\.topics"):
            names["stasher"].stash(connection, Record("elsewhere", "k"))
    plain, text, event, avro = harvested(postgres_dsn, kafka_broker, topic, 4)
    assert plain.value() == event.value() == b'{"id":42,"total":"9.50"}'
    assert text.value() == b"42;9.50"
    assert dict(event.headers() or [])["ce_type"] == b"order.paid"
    place = SerializationContext(topic, MessageField.VALUE)
    assert AvroDeserializer(client)(avro.value(), place) == {"id": 42, "total": Decimal("9.50")}


def test_a_consumer_of_confluents_reads_each_format(
    server: ApicurioServer, client: SchemaRegistryClient, topic: str
) -> None:
    class Order(pydantic.BaseModel):
        id: int

    message, schema = message_class(2), json.dumps(Order.model_json_schema())
    place = SerializationContext(topic, MessageField.VALUE)
    with closing(SchemaRegistry(server.url)) as registry:
        as_json = Record.of(topic, "k", Order(id=42), serializer=registry.json(schema))
        made = message(n1=1, n2=2)
        as_protobuf = Record.of(f"{topic}-p", "k", made, serializer=registry.protobuf(message))
    assert JSONDeserializer(schema, schema_registry_client=client)(as_json.value, place) == {"id": 42}
    read = ProtobufDeserializer(message, {"use.deprecated.format": False})(as_protobuf.value, place)
    assert (read.n1, read.n2) == (1, 2)


def test_a_schema_is_registered_once_and_then_needs_no_registry(
    server: ApicurioServer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = f"{topic}-other"
    with closing(SchemaRegistry(server.url)) as patient:
        serializer = patient.avro(ORDER % ID)
        first = Record.of(topic, "k", {"id": 1}, serializer=serializer)
        monkeypatch.setattr(patient._client._rest_client.session, "timeout", 0.2)
        server.pause()
        assert Record.of(topic, "k", {"id": 1}, serializer=serializer) == first
        with pytest.raises(RecordError, match="does not answer"):
            Record.of(other, "k", {"id": 1}, serializer=serializer)
        server.resume()
        monkeypatch.undo()
        assert Record.of(other, "k", {"id": 1}, serializer=serializer).value


@dataclass
class Order:
    id: Any
    note: str = "a note"


def test_each_error_stands_on_the_page(
    postgres_dsn: str, server: ApicurioServer, client: SchemaRegistryClient, topic: str
) -> None:
    old, new = ORDER % ID, ORDER % f"{ID}, {NOTE}"
    errors: list[str] = []
    with ExitStack() as stack:
        connection = stack.enter_context(psycopg.connect(postgres_dsn, autocommit=True))

        def connect(url: str, settings: dict[str, Any] | None = None) -> SchemaRegistry:
            return stack.enter_context(closing(SchemaRegistry(url, settings)))

        def attempt(serializer: Serializer, order: Order = Order(1), to: str = topic) -> None:  # noqa: B008 - never changed
            error = refused(lambda: Record.of(to, "42", order, serializer=serializer), connection)
            errors.append(error.replace(to, "orders"))

        registry = connect(server.url)
        attempt(connect(f"http://someone:secret@127.0.0.1:{free_port()}").avro(old))
        server.pause()
        # Of another topic: the registry may still answer what nobody waits for, and register the schema.
        attempt(connect(server.url, {"timeout": 0.2}).avro(old), to=f"late-{topic}")
        server.resume()
        attempt(registry.avro(old, {"auto.register.schemas": False}))
        attempt(registry.json('{"title": "Order", "type": "nonsense"}'))
        assert Record.of(topic, "42", Order(1), serializer=registry.avro(old)).value
        attempt(registry.avro(old), Order("a secret"))
        client.set_compatibility(f"{topic}-value", "BACKWARD")
        attempt(registry.avro(new))
    for error in errors:
        sentence = re.sub(r"127\.0\.0\.1:\d+", "registry:8081", error)
        assert f"`{sentence}`" in PAGE
        assert "secret" not in sentence


class Proxy(BaseHTTPRequestHandler):
    """A proxy before a registry, which refuses everybody: it knows one user, who may change nothing."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        user = base64.b64decode(self.headers.get("Authorization", "").removeprefix("Basic "))
        status, said = (403, b"<h1>Forbidden</h1>") if user == b"ada:secret" else (401, b"<h1>Who?</h1>")
        self.send_response(status)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None:
        """Stays silent."""


def test_who_may_not_is_told_so() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        Thread(target=proxy.serve_forever, daemon=True).start()
        for user, status, cure in (
            ("eve:secret", 401, "check basic.auth.user.info"),
            ("ada:secret", 403, "check what this user may do with the subject"),
        ):
            settings = {"basic.auth.user.info": user}
            with closing(SchemaRegistry(f"http://127.0.0.1:{proxy.server_port}", settings)) as registry:
                serializer = registry.avro(ORDER % ID)
                with pytest.raises(RecordError, match=rf"\(HTTP status {status}\); {cure}") as refusal:
                    Record.of("orders", "42", Order(1), serializer=serializer)
            assert "secret" not in str(refusal.value)
        proxy.shutdown()


def test_a_schema_that_is_none_is_refused_when_the_application_starts() -> None:
    with closing(SchemaRegistry("http://127.0.0.1:9")) as registry:
        for schema in ('{"type": "nonsense"}', "{"):
            with pytest.raises(ConfigError, match="the schema is not one of Avro"):
                registry.avro(schema)


def test_an_asyncapi_document_has_the_registrys_schemas(
    server: ApicurioServer, client: SchemaRegistryClient, topic: str, tmp_path: Path
) -> None:
    json_schema = json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"})
    protobuf = 'syntax = "proto3"; message Order { int64 id = 1; }'
    for kind, text in (("AVRO", ORDER % ID), ("JSON", json_schema), ("PROTOBUF", protobuf)):
        client.register_schema(f"{topic}-{kind}-value", Schema(text, kind))
    topics = [*(f"{topic}-{kind}" for kind in ("AVRO", "JSON", "PROTOBUF")), f"{topic}-none"]
    settings = configure({"harvest": {"topics": topics, "engine": "inline"}})
    made = document(settings.outboxes, (), server.url)
    subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(tmp_path), "@asyncapi/specs@6.11.1"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    schema = tmp_path / "node_modules" / "@asyncapi" / "specs" / "schemas" / "3.0.0.json"
    assert [*Draft7Validator(json.loads(schema.read_text("utf-8"))).iter_errors(made)] == []
    told = {name: each["messages"]["record"].get("payload") for name, each in made["channels"].items()}
    avro, as_json, as_protobuf, nothing = (told[name] for name in topics)
    assert avro["schemaFormat"].startswith("application/vnd.apache.avro")
    assert avro["schema"]["name"] == "Order"
    assert as_json["schema"]["type"] == "object"
    assert "message Order" in as_protobuf["schema"]
    assert nothing is None
