"""Errors of serializers tell where a model does not fit, and quote nothing of it."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from threading import Thread

import pytest
from outbox_api.application.schemas import SchemaRegistry

SECRET = "secret-4711"
JSON = {
    "title": "Order",
    "type": "object",
    "properties": {"by": {"type": "object", "additionalProperties": {"type": "integer"}}},
}
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "by", "type": {"type": "map", "values": "int"}}],
}


@pytest.mark.parametrize(
    ("kind", "schema", "where"),
    [("json", JSON, "properties/by/additionalProperties/type: integer"), ("avro", AVRO, "by")],
)
def test_a_key_of_a_mapping_is_not_quoted(kind: str, schema: object, where: str) -> None:
    registry = SchemaRegistry("mock://registry")
    serialize = getattr(registry, kind)(json.dumps(schema))
    with pytest.raises(ValueError, match=where) as caught:
        serialize({"by": {SECRET: SECRET}}, "orders")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        f"htp://user:{SECRET}@registry:8081",
        f"user:{SECRET}@registry:8081",
        f"http://user:a/{SECRET}@registry:8081",
        f"http://user:1/{SECRET}@registry:8081",
        f"http://user:{SECRET}#1@registry:8081",
        f"http://one:8081,http://user:1?{SECRET}@two:8081",
    ],
)
def test_an_address_that_is_none_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ValueError, match="percent-encoded") as caught:
        SchemaRegistry(url)
    assert SECRET not in str(caught.value)


@pytest.fixture
def dripping() -> Iterator[str]:
    """The address of a registry that answers byte by byte, and never ends."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                for _ in range(1000):
                    connection.sendall(b" ")
                    time.sleep(0.1)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    Thread(target=drip, args=(server.accept()[0],), daemon=True).start()

        Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(("kind", "schema"), [("json", JSON), ("avro", AVRO)])
def test_a_registry_that_answers_byte_by_byte_is_waited_for_no_longer(
    dripping: str, kind: str, schema: object
) -> None:
    with closing(SchemaRegistry(dripping, {"timeout": 0.5})) as registry:
        serialize = getattr(registry, kind)(json.dumps(schema))
        began = time.monotonic()
        with pytest.raises(ValueError, match="does not answer: timed out"):
            serialize({"by": {}}, "orders")
        assert time.monotonic() - began < 50, "it drips for twice as long"
