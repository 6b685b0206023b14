"""Rows of other layouts become records, or say why not."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from outbox_api import ConfigError, Intake, Record, Taken
from outbox_api.intake.taken import fault, take

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
        text = "".join(each for each in texts if isinstance(each, str))
        text.encode()  # raises for half of a surrogate pair, as every dialect
        if len(record.key) > 100 or "\0" in text:
            raise ValueError("no room for it")

    return take(intake, found, binary=binary, bind=bind)


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
        ({}, {"aggregatetype": "x" * 240}, "of 253 characters; a topic has 1 to 249"),
        ({}, {"aggregatetype": "shop.Order$Placed"}, "its topic is 'outbox.event.shop.Order$Placed'"),
        ({"headers_json": "h"}, {"h": "{"}, "column 'h' is not JSON"),
        ({"headers_json": "h"}, {"h": "[]"}, "column 'h' is not a JSON object"),
        ({"headers_json": "h"}, {"h": "[" * 100_000}, "column 'h' is not JSON"),
        ({"headers_json": "h"}, {"h": '{"a": "\\ud800"}'}, "surrogates not allowed"),
        ({"headers_json": "h"}, {"h": '{"a": "\\u0000"}'}, "no room for it"),
        *(
            ({"partition": "p"}, {"p": part}, "column 'p' holds no whole number that a partition may have")
            for part in ("one", 1.5, float("inf"), -2, 2**31, datetime(2026, 1, 2, tzinfo=UTC))
        ),
        *(
            ({"timestamp": "t"}, {"t": moment}, "column 't' holds no moment")
            for moment in ("yesterday", 2**63, "infinity", 1.5, 0, -2)
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
    keys = ["a\0", "a\\0", "x" * 101, "x" * 102, b"\0" * 51]
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
        ({"layout": "debezium", "topic": "${routedByValue}"}, "the way of another tool"),
        ({"layout": "debezium", "topic": "a.{col:.4}"}, "'{col:.4}' is not a column in braces"),
        ({"layout": "debezium", "topic": "a.{col!r}"}, "'{col!r}' is not a column in braces"),
        ({"layout": "debezium", "topic": "a.{col->}"}, "no column->member.of_member"),
        ({"layout": "debezium", "key": "payload->a..b"}, "no column->member.of_member"),
        ({"layout": "debezium", "key": "a|"}, "no column->member.of_member"),
        ({"layout": "debezium", "headers": {"h": "->a"}}, "no column->member.of_member"),
        ({"layout": "debezium", "value": "a|b"}, "write one column, or a member of one"),
        ({"layout": "debezium", "header_names": "a"}, "need each other"),
        *(
            ({"layout": "debezium", "zone": zone}, f"zone is '{zone}'")
            for zone in ("Mars/Base", "../etc/passwd", "CEST ")
        ),
        ({"layout": "debezum"}, "known by name: brighter, cap, debezium"),
        ({"layout": "debezium", "topic": "a{b"}, "write a column in braces"),
        ({"layout": "debezium", "topic": "a{}b"}, "write a column in braces"),
    ],
)
def test_bad_mappings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Intake(table="events", **options)


EAST = timezone(timedelta(hours=8))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("é", "é"),
        (7, "7"),
        (True, "true"),
        (False, "false"),
        (1e22, "1e+22"),
        (0.1, "0.1"),
        (Decimal("1.50"), "1.50"),
        (Decimal("1E+3"), "1000"),
        (Decimal("1E-9"), "0.000000001"),
        (ID, str(ID)),
        (ID.bytes, str(ID)),
        (bytearray(ID.bytes), str(ID)),
        (b"\xff\0", "ff00"),
        (b"ann", "616e6e"),
        (b"", ""),
        (date(2026, 1, 2), "2026-01-02"),
        (time(1, 2, 3), "01:02:03"),
        (timedelta(hours=-1, seconds=-1.5), "-01:00:01.5"),
        (timedelta(days=1, hours=2), "26:00:00"),
        (datetime.fromisoformat("2026-01-02 03:04:05"), "2026-01-02T03:04:05Z"),
        (datetime.fromisoformat("2026-01-02 03:04:05.000120"), "2026-01-02T03:04:05.00012Z"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=EAST), "2026-01-01T19:04:05Z"),
        (datetime.max.replace(tzinfo=EAST), "9999-12-31T15:59:59.999999Z"),
        (datetime.min.replace(tzinfo=EAST), "0001-01-01T00:00:00+08:00"),
        ({"a": Decimal("1.10"), "é": [None, True]}, '{"a":"1.10","é":[null,true]}'),
    ],
)
def test_each_type_has_one_text_wherever_it_stands(value: Any, text: str) -> None:
    topic = "t.{part}" if re.fullmatch(r"[\w.-]+", text, re.ASCII) else "t"
    intake = Intake(table="events", layout="debezium", topic=topic, headers={"h": "part"})
    found = taken(intake, row(aggregateid=value, part=value))
    assert (found.topic, found.key, found.values) == (topic.format(part=text), text, [text])


def test_different_bytes_are_different_keys() -> None:
    intake = Intake(table="events", layout="debezium")
    found = [
        b"\\xff",
        b"\xff",
        b"\0",
        b"\\0",
        ID.bytes,
        ID.hex.encode(),
        str(ID).encode(),
        b"",
        b"\xed\xa0\x80",
    ]
    assert len({taken(intake, row(aggregateid=each)).key for each in found}) == len(found)
    assert not any(taken(intake, row(aggregateid=each)).topic == "" for each in found)


def test_times_without_a_zone_are_of_the_zone_that_is_said() -> None:
    moment = datetime.fromisoformat("2026-07-01 12:00:00")
    intake = Intake(
        table="events", layout="debezium", timestamp="at", headers={"at": "at"}, zone="Asia/Shanghai"
    )
    found = taken(intake, row(at=moment))
    assert (found.values, found.timestamp_ms) == (["2026-07-01T04:00:00Z"], 1782878400000)
    assert taken(intake, row(at=moment.replace(tzinfo=UTC))).values == ["2026-07-01T12:00:00Z"]
    assert taken(intake, row(at="2026-07-01 12:00:00")).timestamp_ms == 1782878400000
    exact = moment.replace(microsecond=5_000)
    assert taken(intake, row(at=exact)).timestamp_ms == 1782878400005
    # Neither seconds nor text are guessed: a number counts as milliseconds, a text is a text.
    for number in (1782878400, 1782878400.0, Decimal("1782878400.000"), "1782878400.000"):
        assert taken(intake, row(at=number)).timestamp_ms == 1782878400
    assert taken(intake, row(at="2026-07-01 12:00:00")).values == ["2026-07-01 12:00:00"]
    twice = datetime.fromisoformat("2026-10-25 02:30:00")  # the clocks go back from 3 to 2
    berlin = Intake(table="events", layout="debezium", headers={"at": "at"}, zone="Europe/Berlin")
    assert taken(berlin, row(at=twice)).values == ["2026-10-25T00:30:00Z"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("customer.id", "é7"),
        ("customer.n", "1.10"),
        ("customer.big", "123456789012345678901234567890"),
        ("list.1.x", "true"),
        ("list.7", ""),
        ("gone.id", ""),
        ("customer.none", ""),
        ("customer", '{"id": "\\u00e97", "n":1.10, "big":123456789012345678901234567890, "none": null}'),
        ("twice", "2"),
    ],
)
def test_a_key_may_be_a_member_of_json(path: str, text: str) -> None:
    document = (
        ' {"customer" : {"id": "\\u00e97", "n":1.10, "big":123456789012345678901234567890, "none": null},'
        ' "list": [0, {"x": true}], "twice": 1, "twice": 2}'
    )
    intake = Intake(
        table="events",
        layout="debezium",
        topic="t.{type|payload->list.0}",
        key=f"payload->{path}",
        headers={"both": f"payload->{path} | id", "id": "id"},
    )
    assert intake.columns == ["id", "type", "payload"]
    for payload in (document, document.encode()):
        found = taken(intake, row(payload=payload, type=None))
        assert (found.topic, found.key, found.value) == ("t.0", text, document)
        assert found.values == [text or str(ID), str(ID)]


@pytest.mark.parametrize(
    "payload", ["", "{", '{"a"', '{"a":1', '{"a" 1}', '{"b":1 "a":2}', "[" * 100_000, "{]"]
)
def test_a_key_in_what_is_no_json_is_a_fault(payload: str) -> None:
    found = taken(Intake(table="events", layout="debezium", key="payload->a"), row(payload=payload))
    assert "column 'payload' is not JSON" in (fault(found.names, found.values) or "")
    assert (found.value, found.key[:24]) == (payload, "column 'payload' is not ")


def test_a_value_and_headers_within_a_json_column_keep_their_digits() -> None:
    intake = Intake(
        table="published",
        id="Id",
        topic="{Name}",
        key="Content->Headers.key|Id",
        value="Content->Value",
        headers_json="Content->Headers",
    )
    content = (
        '{"Headers":{"key":"k","none":null,"n":[1]},"Value":{"price":1.10, "big":0.10000000000000000555}}'
    )
    found = taken(intake, {"Id": 1, "Name": "n", "Content": content})
    assert found[:5] == (
        "n",
        "k",
        '{"price":1.10, "big":0.10000000000000000555}',
        ["key", "none", "n"],
        ["k", None, "[1]"],
    )
    assert taken(intake, {"Id": 1, "Name": "n", "Content": '{"Headers":{}}'})[:3] == ("n", "1", None)


def test_numbers_among_headers_keep_their_digits() -> None:
    many = '{"a": 1.10, "b": {"c" : 9007199254740993.10}, "d": [1e9], "e": null, "f": "x", "a": 1e22, "": 0}'
    written = {
        "a": "1e22",
        "b": '{"c" : 9007199254740993.10}',
        "d": "[1e9]",
        "e": None,
        "f": "x",
        "": "0",
    }
    intake = Intake(table="outbox", layout="debezium", headers={}, headers_json="h")
    found = taken(intake, row(h=many))
    assert dict(zip(found.names, found.values, strict=True)) == {"id": str(ID), **written}
    lists = Intake(table="outbox", layout="debezium", headers={}, header_names="n", header_values="v")
    found = taken(lists, row(n='["a", "b"]', v="[1.10, [2.50]]"))
    assert (found.names[1:], found.values[1:]) == (["a", "b"], ["1.10", "[2.50]"])


def test_headers_in_two_lists() -> None:
    intake = Intake(table="outbox", layout="debezium", headers={}, header_names="n", header_values="v")
    found = taken(intake, row(n='["a", "a", "b"]', v='["1", null, "3"]'))
    assert (found.names[1:], found.values[1:]) == (["a", "a", "b"], ["1", None, "3"])
    assert taken(intake, row(n=None, v=None)).names == ["id"]
    for names, values in (('["a"]', "[]"), ('{"a": 1}', '["a"]'), ('["a"]', None)):
        odd = taken(intake, row(n=names, v=values))
        assert "are not lists of one length" in (fault(odd.names, odd.values) or "")
