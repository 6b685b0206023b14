"""Rows of other layouts become records, or say why not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from outbox_sdk import ConfigError, Intake, Taken
from outbox_sdk.intake import fault

ID = UUID("0194f3a6-0000-7000-8000-000000000001")


def row(**columns: Any) -> dict[str, Any]:
    return {"id": ID, "aggregatetype": "order", "aggregateid": 7, "payload": '{"a": 1}', **columns}


def test_debeziums_layout() -> None:
    intake = Intake(table="outboxevent", layout="debezium")
    assert intake.columns == ["id", "aggregatetype", "aggregateid", "payload"]
    assert intake.take(row()) == Taken("outbox.event.order", "7", '{"a": 1}', ["id"], [str(ID)], None, None)
    assert intake.take(row(payload=None)).value is None
    assert intake.take(row(aggregateid=None)).key == ""


def test_every_column_that_a_mapping_can_name() -> None:
    intake = Intake(
        table="events",
        layout="debezium",
        order="n",
        topic="shop",
        key="who",
        value="what",
        headers={"kind": "type", "none": "none"},
        headers_json="more",
        partition="part",
        timestamp="at",
    )
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    found = {
        "id": 3,
        "n": 1,
        "who": "é",
        "what": b"\xff",
        "type": "new",
        "none": None,
        "part": 2,
        "at": moment,
    }
    assert set(intake.columns) == {*found, "more"}
    taken = intake.take({**found, "more": '{"x": "1", "y": null, "z": [2]}'})
    assert taken == Taken(
        "shop",
        "é",
        b"\xff",
        ["kind", "none", "x", "y", "z"],
        ["new", None, "1", None, "[2]"],
        2,
        1767312000000,
    )
    assert intake.take({**found, "more": None, "at": "2026-01-02T00:00:00"}).timestamp_ms == 1767312000000
    assert intake.take({**found, "more": {}, "at": 17}).timestamp_ms == 17


@pytest.mark.parametrize(
    ("changes", "columns", "reason"),
    [
        ({}, {"aggregatetype": None}, "column 'aggregatetype' is null, and the topic is made of it"),
        ({}, {"aggregatetype": "x" * 240}, "its topic has 253 characters; Kafka takes 1 to 249"),
        ({"headers_json": "h"}, {"h": "{"}, "column 'h' is not JSON"),
        ({"headers_json": "h"}, {"h": "[]"}, "column 'h' is not a JSON object"),
        ({"partition": "p"}, {"p": "one"}, "column 'p' holds no whole number"),
        ({"timestamp": "t"}, {"t": "yesterday"}, "yesterday"),
    ],
)
def test_a_row_that_cannot_be_mapped_keeps_its_key_and_value_and_says_why(
    changes: dict[str, Any], columns: dict[str, Any], reason: str
) -> None:
    taken = Intake(table="events", layout="debezium", **changes).take(row(**columns))
    assert (taken.topic, taken.key, taken.value) == ("", "7", '{"a": 1}')
    why = fault(taken.names, taken.values)
    assert why is not None
    assert f"row {ID} of table events cannot be mapped" in why
    assert reason in why
    assert fault(["id"], []) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs id, topic, key, value, or a layout"),
        ({"layout": "debezum"}, "known by name: debezium"),
        ({"layout": "debezium", "topic": "a{b"}, "write a column in braces"),
    ],
)
def test_bad_mappings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Intake(table="events", **options)
