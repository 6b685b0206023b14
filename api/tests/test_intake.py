"""Rows of other layouts become records, or say why not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from outbox_api import ConfigError, Intake, Record, Taken
from outbox_api.intake import fault

ID = UUID("0194f3a6-0000-7000-8000-000000000001")


def taken(intake: Intake, found: dict[str, Any], *, binary: bool = False) -> Taken:
    """Takes a row for an outbox that holds no NUL and no key of more than 100 characters."""

    def bind(record: Record) -> None:
        texts = (
            record.topic,
            record.key,
            record.value,
            *(part for header in record.headers for part in header),
        )
        if len(record.key) > 100 or any("\0" in text for text in texts if isinstance(text, str)):
            raise ValueError("no room for it")

    return intake.take(found, binary=binary, bind=bind)


def row(**columns: Any) -> dict[str, Any]:
    return {"id": ID, "aggregatetype": "order", "aggregateid": 7, "payload": '{"a": 1}', **columns}


def test_debeziums_layout() -> None:
    intake = Intake(table="outboxevent", layout="debezium")
    assert intake.columns == ["id", "aggregatetype", "aggregateid", "payload"]
    assert taken(intake, row()) == Taken("outbox.event.order", "7", '{"a": 1}', ["id"], [str(ID)], None, None)
    assert taken(intake, row(payload=None)).value is None
    assert taken(intake, row(aggregateid=None)).key == ""


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
    all_of_it = {**found, "more": '{"x": "1", "y": null, "z": [2]}'}
    assert taken(intake, all_of_it, binary=True) == Taken(
        "shop",
        "é",
        b"\xff",
        ["kind", "none", "x", "y", "z"],
        ["new", None, "1", None, "[2]"],
        2,
        1767312000000,
    )
    assert (
        taken(intake, {**found, "more": None, "at": "2026-01-02T00:00:00"}, binary=True).timestamp_ms
        == 1767312000000
    )
    assert taken(intake, {**found, "more": {}, "at": 17}, binary=True).timestamp_ms == 17


@pytest.mark.parametrize(
    ("changes", "columns", "reason"),
    [
        ({}, {"aggregatetype": None}, "column 'aggregatetype' is null, and the topic is made of it"),
        ({}, {"aggregatetype": "x" * 240}, "its topic has 253 characters; Kafka takes 1 to 249"),
        ({"headers_json": "h"}, {"h": "{"}, "column 'h' is not JSON"),
        ({"headers_json": "h"}, {"h": "[]"}, "column 'h' is not a JSON object"),
        ({"headers_json": "h"}, {"h": "[" * 100_000}, "column 'h' is not JSON"),
        ({"headers_json": "h"}, {"h": '{"a": "\\ud800"}'}, "surrogates not allowed"),
        ({"headers_json": "h"}, {"h": '{"a": "\\u0000"}'}, "no room for it"),
        *(
            ({"partition": "p"}, {"p": part}, "column 'p' holds no whole number that a partition may have")
            for part in ("one", 1.5, float("inf"), -1, 2**31, datetime(2026, 1, 2, tzinfo=UTC))
        ),
        *(
            ({"timestamp": "t"}, {"t": moment}, "column 't' holds no moment")
            for moment in ("yesterday", 2**63, "infinity", 1.5)
        ),
    ],
)
def test_a_row_that_cannot_be_mapped_keeps_its_key_and_value_and_says_why(
    changes: dict[str, Any], columns: dict[str, Any], reason: str
) -> None:
    found = taken(Intake(table="events", layout="debezium", **changes), row(**columns))
    assert (found.topic, found.key, found.value) == ("", "7", '{"a": 1}')
    why = fault(found.names, found.values)
    assert why is not None
    assert f"row {ID} of table events cannot be mapped" in why
    assert reason in why
    assert fault(["id"], []) is None


def test_a_key_that_cannot_be_held_is_held_by_a_fault_of_its_own() -> None:
    intake = Intake(table="events", layout="debezium")
    keys = ["a\0", "a\\0", "x" * 101, "x" * 102, b"\0"]
    found = [taken(intake, row(aggregateid=key)) for key in keys * 2]
    assert [bool(fault(each.names, each.values)) for each in found[:5]] == [True, False, True, True, True]
    assert [each.key for each in found[:5]] == [each.key for each in found[5:]]
    assert len({each.key for each in found}) == 5
    assert all("\0" not in each.key and len(each.key) < 200 for each in found)


@pytest.mark.parametrize("payload", [b"\xff", bytearray(b"\xff"), memoryview(b"\xff")])
def test_bytes_come_as_they_are_or_not_as_text(payload: Any) -> None:
    intake = Intake(table="events", layout="debezium")
    assert taken(intake, row(payload=payload), binary=True).value == b"\xff"
    found = taken(intake, row(payload=payload))
    assert "column 'payload' holds bytes that are no text" in (fault(found.names, found.values) or "")
    assert found.value == "\\xff"
    assert taken(intake, row(payload=b"text")).value == "text"
    assert taken(intake, row(payload="text"), binary=True).value == b"text"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs id, topic, key, value, or a layout"),
        ({"layout": "debezum"}, "known by name: debezium"),
        ({"layout": "debezium", "topic": "a{b"}, "write a column in braces"),
        ({"layout": "debezium", "topic": "a{}b"}, "write a column in braces"),
    ],
)
def test_bad_mappings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Intake(table="events", **options)
