"""Errors of serializers tell where a model does not fit, and quote nothing of it."""

from __future__ import annotations

import json

import pytest
from outbox_api.schemas import SchemaRegistry

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
