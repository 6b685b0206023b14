"""Types of all databases have their nature; a column that no catalogue shows is judged by its values."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from outbox_api import Intake, Level
from outbox_api.portable.column_facts import ColumnFacts, Nature
from outbox_api.portable.intake_order import judge

TYPES = {
    Nature.NUMBER: "bigint;int unsigned;tinyint(1);integer;serial;numeric(19);number;decimal(10,0);double",
    Nature.MOMENT: "timestamp with time zone;timestamp(6);datetime2(7);datetime(3);datetimeoffset(3)",
    Nature.COARSE: "timestamp(0) without time zone;datetime(0);date;smalldatetime;year;time(6)",
    Nature.UUID: "uuid;uniqueidentifier;binary(16);raw(16)",
    Nature.TEXT: "character varying(36);varchar(36);nvarchar;char(26);text;longtext;varchar2;clob;enum('a')",
    Nature.OTHER: "boolean;bytea;json;jsonb;interval;point;bit(1);integer[];varbinary(20);",
}
GREATEST = {
    "integer": 2**31 - 1,
    "int(11)": 2**31 - 1,
    "int unsigned": 2**32 - 1,
    "mediumint unsigned": 2**24 - 1,
    "smallint": 2**15 - 1,
    "bigint": 2**63 - 1,
    "numeric": None,
    "text": None,
}


@pytest.mark.parametrize("nature", TYPES)
def test_a_type_has_its_nature(nature: Nature) -> None:
    found = {type_: ColumnFacts(type_).nature for type_ in TYPES[nature].split(";")}
    assert found == dict.fromkeys(found, nature)


def test_a_type_without_digits_has_those_of_its_database() -> None:
    assert ColumnFacts("datetime", digits=0).nature is Nature.COARSE
    assert ColumnFacts("timestamp", digits=6).nature is Nature.MOMENT


def test_a_whole_number_has_a_greatest_one() -> None:
    assert {type_: ColumnFacts(type_).greatest for type_ in GREATEST} == GREATEST


@pytest.mark.parametrize(
    ("type_", "never", "may"),
    [
        ("int", ["NEW", "inf", None], ["7", "-1.5", True]),
        ("character varying(3)", ["SENT", None], ["NEW"]),
        ("varchar2(3 char)", ["SENT", None], ["NEW"]),
        ("enum('new','sent')", ["PENDNG", None], ["NEW", "sent"]),
        ("json", ["NEW", True, None], []),
        ("char(1)", [False, True], ["N"]),
        ("datetime(6)", [False], []),
        ("boolean", [], [False, "f"]),
        ("bit(1)", [], [True]),
        ("timestamp(3) without time zone", [None], ["2026-01-02 03:04:05"]),
    ],
)
def test_a_column_that_refuses_nulls_never_equals_what_it_has_no_room_for(
    type_: str, never: list[Any], may: list[Any]
) -> None:
    facts = ColumnFacts(type_, required=True)
    assert [facts.never(value) for value in (*never, *may)] == [True] * len(never) + [False] * len(may)
    assert not facts._replace(required=False).never(None)


@pytest.mark.parametrize(
    ("values", "level"),
    [
        ([], Level.OK),
        ([None, 7], Level.OK),
        ([Decimal(7)], Level.OK),
        ([datetime(2026, 7, 1, tzinfo=UTC)], Level.WARNING),
        ([uuid4()], Level.ERROR),
        ([str(uuid4())], Level.ERROR),
        ([uuid4().bytes], Level.ERROR),
        ([UUID("0194f3a6-0000-7000-8000-000000000001")], Level.WARNING),
        (["01J9ZQ"], Level.WARNING),
        (["0000018cfcc3c8a1-66f8c7df475c0000"], Level.WARNING),  # Eventuate's
        ([True], Level.ERROR),
    ],
)
def test_a_column_that_no_catalogue_shows_is_judged_by_its_values(values: list[Any], level: Level) -> None:
    hidden = ColumnFacts("", told=False)
    intake = Intake(table="events", layout="debezium", order="at")
    assert judge(intake, {"id": hidden._replace(type="uuid"), "at": hidden}, lambda: values).level is level
