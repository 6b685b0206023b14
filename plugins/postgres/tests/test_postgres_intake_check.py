"""What a check says of another table: its order, state, keys, room and moments; the text of each type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from outbox_api import DriverError, Finding, Intake, Level
from outbox_postgres import PostgresDialect
from outbox_servers.services import PostgresServer

from .outbox_hands import MakeOutbox

V7 = UUID("0194f3a6-0000-7000-8000-000000000001")


class Case(NamedTuple):
    """A table, and what is said of it beside its order, or of its order.

    Attributes:
        columns: Its columns before ``k`` and ``v``, behind other statements.
        rows: What is inserted: the columns, and ``VALUES`` or a query; nothing if empty.
        level: The level of what is said; ``None`` if nothing is.
        message: A part of it.
        intake: What the intake says beside table, id, topic, key and value.
    """

    columns: str
    rows: str
    level: Level | None
    message: str = ""
    intake: Mapping[str, Any] = {}


def intake_of(table: str, **options: Any) -> Intake:
    return Intake(**{"table": table, "id": "id", "topic": "shop", "key": "k", "value": "v", **options})


def said(make_outbox: MakeOutbox, cases: Sequence[Case], dsn: str | None = None) -> list[list[Finding]]:
    """Makes an outbox with an intake for each case; returns what a check says of each."""
    tables = [f"events{number:02}" for number in range(len(cases))]
    intakes = tuple(intake_of(table, **case.intake) for table, case in zip(tables, cases, strict=True))
    box = make_outbox(dsn, intake=intakes)
    box.dialect.create()
    for table, (columns, rows, *_) in zip(tables, cases, strict=True):
        before, _, defined = columns.rpartition(";")
        box.admin.execute(f"{before}; CREATE TABLE {table} ({defined}, k TEXT, v TEXT)")
        if rows:
            box.admin.execute(f"INSERT INTO {table} {rows}")
    found = [each for each in box.dialect.check() if each.subject == "intake"]
    of_tables = [[each for each in found if f"table {table}" in each.message] for table in tables]
    assert sum(map(len, of_tables)) == len(found), found
    for intake, of_table in zip(intakes, of_tables, strict=True):
        if any("cannot be taken in" in each.message for each in of_table):
            with (
                closing(PostgresDialect(replace(box.options, intake=intake)).intakes()) as moving,
                pytest.raises(DriverError, match="cannot be taken in"),
            ):
                moving.require()
    return of_tables


def test_an_order_by_moments_names_that_of_commits_unless_ids_are_numbers(make_outbox: MakeOutbox) -> None:
    at, both = {"order": "at"}, "(id, at, k) VALUES (gen_random_uuid(), now(), 'k')"
    numbers = Case(
        "id BIGSERIAL, at TIMESTAMPTZ DEFAULT now()", "(k) VALUES ('k')", Level.WARNING, "a transaction", at
    )
    cases = [Case("id UUID, at TIMESTAMPTZ DEFAULT now()", both, Level.WARNING, "a transaction", at), numbers]
    found = said(make_outbox, cases)
    require_said(cases, found)
    named = ["track_commit_timestamp = on" in str(each.cure) for [each] in found]
    assert named == [True, False], found


def require_said(cases: Sequence[Case], found: Sequence[Sequence[Finding]]) -> None:
    for case, of_table in zip(cases, found, strict=True):
        assert [(each.level, case.message in each.message) for each in of_table] == (
            [(case.level, True)] if case.level else []
        ), (case, of_table)
        assert all(each.cure for each in of_table if each.level is not Level.OK)


def test_an_order_is_named_and_judged(make_outbox: MakeOutbox) -> None:
    at, by_id = {"order": "at"}, {"order": "id"}
    rows, timed = "(k) VALUES ('k')", "(at, k) VALUES (now(), 'k')"
    random, both = (
        "(id, k) VALUES (gen_random_uuid(), 'k')",
        "(id, at, k) VALUES (gen_random_uuid(), now(), 'k')",
    )
    step = "CREATE SEQUENCE blocks INCREMENT BY 50;id BIGINT DEFAULT nextval('blocks')"
    cache = "id BIGINT GENERATED ALWAYS AS IDENTITY (CACHE 20)"
    down, cycle = (f"id BIGINT GENERATED ALWAYS AS IDENTITY ({how})" for how in ("INCREMENT -1", "CYCLE"))
    coarse, version = "moments of whole seconds", "UUIDs whose order is not that of time"
    cases = [
        Case("id BIGSERIAL", rows, Level.OK, "can be taken in, in the order of 'id' (bigint)"),
        Case("id INT GENERATED ALWAYS AS IDENTITY", rows, Level.OK, "in the order of 'id' (integer)"),
        Case("id BIGINT", "VALUES (1, 'k')", Level.WARNING, "comes in blocks (Hibernate's pooled ids)"),
        Case(step, rows, Level.WARNING, "given out in blocks of 50"),
        Case(cache, rows, Level.WARNING, "given out in blocks of 20"),
        Case(down, rows, Level.ERROR, "its numbers do not always rise"),
        Case(cycle, rows, Level.ERROR, "its numbers do not always rise"),
        Case("id UUID, at TIMESTAMPTZ(0)", both, Level.ERROR, coarse, at),
        Case("id UUID, at DATE", both, Level.ERROR, coarse, at),
        Case("id BIGSERIAL, at TIMESTAMP(0)", timed, Level.WARNING, coarse, at),
        Case(
            "id UUID, at TIMESTAMPTZ", both, Level.WARNING, "rows of one moment come in the order of 'id'", at
        ),
        Case(
            "id BIGSERIAL, at TIMESTAMPTZ",
            timed,
            Level.OK,
            "'at' (timestamp with time zone), then of 'id'",
            at,
        ),
        Case("id BIGSERIAL, at TIMESTAMPTZ DEFAULT now()", timed, Level.WARNING, "a transaction begins", at),
        Case(
            "id BIGSERIAL, at TIMESTAMP",
            timed,
            Level.WARNING,
            "go back comes twice",
            {**at, "zone": "Europe/Berlin"},
        ),
        Case(
            "id BIGSERIAL, at TIMESTAMPTZ", timed, Level.OK, "then of 'id'", {**at, "zone": "Europe/Berlin"}
        ),
        Case("id UUID", random, Level.ERROR, "does not tell the order of its rows"),
        Case("id UUID", random, Level.ERROR, version, by_id),
        Case("id TEXT", random, Level.ERROR, version, by_id),
        Case("id UUID", f"VALUES ('{V7}', 'k')", Level.WARNING, "UUIDs of one millisecond", by_id),
        Case("id TEXT", "VALUES ('01J9ZQ', 'k')", Level.WARNING, "'10' comes before '9'", by_id),
        *(
            Case(f"id BIGSERIAL, at {type_}", rows, Level.ERROR, message, {"where": {"at": "NEW"}, **more})
            for type_, message, more in (
                ("INT", "'at' (integer) never equals 'NEW'", {}),
                ("JSON", "'at' (json) never equals 'NEW'", {}),
                ("BOOLEAN", "invalid input syntax for type boolean", {}),
                ("BIGINT", "never equals 'now()'", {"where": {}, "done": {"at": "now()"}}),
            )
        ),
        Case("id BIGSERIAL, at BOOLEAN", rows, Level.ERROR, "neither numbers nor moments", at),
        Case("CREATE DOMAIN number AS BIGINT;id number", rows, Level.WARNING, "the order of 'id' (int8)"),
    ]
    require_said(cases, said(make_outbox, cases))


def test_the_order_of_commits_is_named_with_what_it_does_not_tell(make_outbox: MakeOutbox) -> None:
    by_place = "in the order of commits; rows of one statement come by their place"
    cases = [Case("id UUID", "(id, k) VALUES (gen_random_uuid(), 'k')", Level.WARNING, by_place)]
    with PostgresServer(settings={"track_commit_timestamp": "on"}) as server:
        require_said(cases, said(make_outbox, cases, server.create_database("shop")))


def test_what_would_be_wrong_without_an_error_is_said(make_outbox: MakeOutbox) -> None:
    sent = [
        *((name, Level.ERROR) for name in ("processed BOOLEAN", "published_at TIMESTAMP", '"isSent" INT')),
        *((name, Level.ERROR) for name in ("completion_date DATE", "dispatched TIMESTAMPTZ", "acked INT")),
        *((name, Level.WARNING) for name in ("status TEXT", '"StatusName" TEXT', "relay_state INT")),
        *(
            (name, None)
            for name in ("sent_at TIMESTAMP NOT NULL DEFAULT now()", "sender TEXT", "statute INT")
        ),
    ]
    rows, counted = "(k) VALUES ('k')", "GENERATED BY DEFAULT AS IDENTITY"
    data = """(data, k) VALUES ('{"customer": 7}', NULL), ('{}', 'k'), ('{}', NULL), (NULL, '')"""
    east, there = "now() AT TIME ZONE 'Asia/Shanghai'", {"zone": "Asia/Shanghai"}
    cases = [
        *(
            Case(f"id BIGSERIAL, {column}", rows, level, "may say that a row was sent")
            for column, level in sent
        ),
        Case("id BIGSERIAL, done BOOLEAN, status TEXT", rows, None, "", {"where": {"done": None}}),
        Case("id BIGSERIAL", "", Level.OK, "deletes in the transaction that writes them are never seen"),
        Case("id BIGSERIAL, data JSONB", data, Level.WARNING, "2 of 4 rows", {"key": "data->customer | k"}),
        Case(
            "id BIGSERIAL, t TEXT",
            "(t, k) VALUES ('a$b', 'k'), ('c', 'k')",
            Level.ERROR,
            "1 of 2",
            {"topic": "{t}"},
        ),
        Case("id BIGSERIAL, at INT", rows, Level.WARNING, "'at' is null in 1 of 1 rows", {"order": "at"}),
        Case(f"id INT {counted}", "VALUES (1, 'k'), (1800000000, 'k')", Level.WARNING, "at 1,800,000,000 of"),
        Case(f"id INT {counted}", "VALUES (1, 'k'), (1700000000, 'k')", None),
        Case(f"id SMALLINT {counted}", "VALUES (30000, 'k')", Level.WARNING, "at 30,000 of 32,767: 92%"),
        *(
            Case(
                f"id BIGSERIAL, at {type_}",
                f"(at, k) VALUES ({moment}, 'k'), (NULL, 'k')",
                level,
                message,
                {"timestamp": "at", **zone},
            )
            for type_, moment, zone, level, message in (
                ("TIMESTAMP", east, {}, Level.ERROR, "8.0 h ahead of the clock"),
                ("TIMESTAMP", east, there, None, ""),
                ("TIMESTAMP", "now() AT TIME ZONE 'UTC'", there, Level.WARNING, "8.0 h behind the clock"),
                ("TIMESTAMPTZ", "now()", there, None, ""),
                ("TIMESTAMPTZ", "now() + interval '30 min'", {}, Level.ERROR, "30 min ahead of the clock"),
                ("BIGINT", "extract(epoch FROM now())", {}, Level.WARNING, "are these seconds?"),
                ("BIGINT", "extract(epoch FROM now()) * 1000", {}, None, ""),
                ("NUMERIC", "1700000000.123", {}, Level.ERROR, "is no whole number of milliseconds"),
                ("TIMESTAMPTZ", "'infinity'", {}, Level.ERROR, "is no moment that a message may have"),
                ("TIMESTAMPTZ", "NULL", {}, None, ""),
            )
        ),
    ]
    found = said(make_outbox, cases)
    orders = [[each for each in of_table if "can be taken in" in each.message] for of_table in found]
    assert {len(each) for each in orders} == {1}
    rest = [[each for each in of_table if "can be taken in" not in each.message] for of_table in found]
    require_said(cases, rest)


TYPES = {
    "bytea": (f"'\\x{V7.hex}'", str(V7)),
    "bytea ": ("'\\x616e6e00'", "616e6e00"),
    "uuid": (f"'{V7}'", str(V7)),
    "timestamptz": ("'2026-07-01 12:00:00.25+08'", "2026-07-01T04:00:00.25Z"),
    "timestamptz ": ("'infinity'", "infinity"),
    "timestamp": ("'2026-07-01 12:00:00'", "2026-07-01T10:00:00Z"),
    "timestamp(3)": ("'2026-01-01 12:00:00.005'", "2026-01-01T11:00:00.005Z"),
    "date": ("'2026-07-01'", "2026-07-01"),
    "time": ("'12:30'", "12:30:00"),
    "numeric(12,3)": ("0.1", "0.100"),
    "numeric": ("1e-9", "0.000000001"),
    "float8": ("1e22", "1e+22"),
    "float4": ("0.1", "0.1"),
    "float8 ": ("3", "3.0"),
    "boolean": ("true", "true"),
    "bit(1)": ("B'1'", "true"),
    "bigint": ("-7", "-7"),
    "interval": ("'1 day 02:03:04.5'", "1 day 02:03:04.5"),
    "timestamptz[]": ("ARRAY['2026-07-01 12:00+08'::timestamptz]", '["2026-07-01T04:00:00+00:00"]'),
    "tstzrange": ("'[2026-07-01 12:00+08,)'", '["2026-07-01 04:00:00+00",)'),
    "bytea[]": ("ARRAY['\\x61'::bytea]", '["\\\\x61"]'),
    "jsonb": ("""'{"b":1, "a":1.10}'""", '{"a": 1.10, "b": 1}'),
    "json": ("""'{"b":1, "a":1.10}'""", '{"b":1, "a":1.10}'),
    "text[]": ("""'{a,NULL}'""", '["a", null]'),
    "varchar(9)": ("'2026-7'", "2026-7"),
}


def test_each_type_has_its_text_whatever_the_session_s_settings(make_outbox: MakeOutbox) -> None:
    names = [f"c{number}" for number in range(len(TYPES))]
    columns = ", ".join(f"{name} {type_}" for name, type_ in zip(names, TYPES, strict=True))
    headers = {name: name for name in names}
    box = make_outbox(
        intake=intake_of("events", key="c1", headers=headers, timestamp="c5", zone="Europe/Berlin")
    )
    box.admin.execute(f"CREATE TABLE events (id BIGSERIAL, {columns}, v TEXT)")
    box.dialect.create()
    database = box.admin.info.dbname
    settings = {
        "DateStyle": "German",
        "TimeZone": "Asia/Tokyo",
        "extra_float_digits": 0,
        "IntervalStyle": "iso_8601",
        "bytea_output": "escape",
    }
    for setting in (f"{name} = '{value}'" for name, value in settings.items()):
        box.admin.execute(f'ALTER DATABASE "{database}" SET {setting}')
    values = ", ".join(value for value, _ in TYPES.values())
    box.admin.execute(f"INSERT INTO events ({', '.join(names)}) VALUES ({values})")
    box.admin.execute("INSERT INTO events (v) VALUES (NULL)")
    first, nulls = box.taken().mark()
    assert dict(first.headers) == dict(zip(names, (text for _, text in TYPES.values()), strict=True))
    assert (first.key, first.timestamp_ms, first.fault) == ("616e6e00", 1782900000000, None)
    assert (dict(nulls.headers), nulls.key, nulls.timestamp_ms) == (dict.fromkeys(names), "", None)
