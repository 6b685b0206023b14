"""Tables of other tools are taken in by name; each type has its text; a check says what it sees."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from outbox_api import DriverError, Finding, Intake, Level
from outbox_api.intake.layouts import LAYOUTS
from outbox_mysql import MySqlDialect
from outbox_testkit.conformance import OutboxUnderTest
from outbox_testkit.conformance.under_test import Box

ID = UUID("0194f3a6-0000-4000-8000-000000000001")


class Case(NamedTuple):
    """A table, its rows, what a user writes of it, and what is taken in: topic, key, value and headers."""

    ddl: str
    rows: tuple[str, ...]
    intake: Mapping[str, Any]
    taken: list[tuple[str, str, str, dict[str, str | None]]]


CASES = {
    "brighter": Case(
        """CREATE TABLE brighter (MessageId VARCHAR(255) NOT NULL PRIMARY KEY, Topic VARCHAR(255) NOT NULL,
        MessageType VARCHAR(32) NOT NULL, Timestamp TIMESTAMP(3) NOT NULL, CorrelationId VARCHAR(255),
        ReplyTo VARCHAR(255), ContentType VARCHAR(128), PartitionKey VARCHAR(128),
        Dispatched TIMESTAMP(3) NULL,
        HeaderBag TEXT NOT NULL, Body TEXT NOT NULL, Source VARCHAR(255), Type VARCHAR(255),
        SpecVersion VARCHAR(255), Created TIMESTAMP(3) NOT NULL DEFAULT NOW(3),
        CreatedID INT(11) NOT NULL AUTO_INCREMENT, UNIQUE (CreatedID))""",
        tuple(
            f"""INSERT INTO brighter (MessageId, Topic, MessageType, Timestamp, PartitionKey, Dispatched,
        HeaderBag,
            Body) VALUES ('m{n}', 'orders', 'MT_EVENT', '2026-07-01 10:00:00.25', 'k', {sent}, '{{}}',
        'b{n}')"""
            for n, sent in ((3, "NULL"), (2, "NOW(3)"), (1, "NULL"))
        ),
        {"table": "brighter", "id": "CreatedID"},
        [
            (
                "orders",
                "k",
                f"b{n}",
                {
                    "MessageType": "MT_EVENT",
                    "Topic": "orders",
                    "MessageId": f"m{n}",
                    "TimeStamp": "2026-07-01T10:00:00.25Z",
                    "ContentType": None,
                    "CorrelationId": None,
                    "ce_id": f"m{n}",
                    "ce_specversion": None,
                    "ce_type": None,
                    "ce_source": None,
                    "ce_time": "2026-07-01T10:00:00.25Z",
                },
            )
            for n in (3, 1)
        ],
    ),
    "cap": Case(
        """CREATE TABLE `cap.published` (Id BIGINT NOT NULL PRIMARY KEY, Version VARCHAR(20),
        Name VARCHAR(200) NOT NULL, Content LONGTEXT, Retries INT, Added DATETIME NOT NULL,
        ExpiresAt DATETIME,
        StatusName VARCHAR(40) NOT NULL)""",
        tuple(
            f"""INSERT INTO `cap.published` VALUES ({n}, 'v1', 'orders',
            '{{"Headers":{{"cap-msg-id":"{n}"}},"Value":{{"n":{n}}}}}', 0, NOW(), NULL, '{status}')"""
            for n, status in ((2, "Scheduled"), (1, "Succeeded"))
        ),
        {"table": "`cap.published`"},
        [("orders", "2", '{"n":2}', {"cap-msg-id": "2"})],
    ),
    "eventuate-tram": Case(
        """CREATE TABLE message (id VARCHAR(255) PRIMARY KEY, destination LONGTEXT NOT NULL,
        headers LONGTEXT NOT NULL, payload LONGTEXT NOT NULL, published SMALLINT DEFAULT 0,
        message_partition SMALLINT, creation_time BIGINT)""",
        tuple(
            f"""INSERT INTO message VALUES ('0000018cfcc3c8a{n}-66f8c7df475c0000', 'orders',
            '{{"PARTITION_ID":"o1"}}', '{{"n":{n}}}',
        {n == 2},
            NULL, 1)"""
            for n in (3, 2, 1)
        ),
        {"table": "message"},
        [("orders", "o1", f'{{"n":{n}}}', {"PARTITION_ID": "o1"}) for n in (1, 3)],
    ),
    "namastack": Case(
        """CREATE TABLE outbox_record (id VARCHAR(255) PRIMARY KEY, status VARCHAR(20) NOT NULL,
        record_key VARCHAR(255) NOT NULL, record_type VARCHAR(255) NOT NULL, payload LONGTEXT NOT NULL,
        context LONGTEXT, created_at TIMESTAMP(6) NOT NULL, completed_at TIMESTAMP NULL,
        failure_count INT NOT NULL,
        next_retry_at TIMESTAMP NOT NULL, partition_no INT NOT NULL, handler_id VARCHAR(1000) NOT NULL)""",
        tuple(
            f"""INSERT INTO outbox_record VALUES (UUID(), '{status}', 'k', 'shop.Placed', '{{"n":{n}}}', NULL,
            '2026-07-01 12:00:00.00000{9 - n}', NULL, 0, NOW(), 7, 'h')"""
            for n, status in ((1, "COMPLETED"), (2, "NEW"), (3, "NEW"))
        ),
        {"table": "outbox_record", "topic": "orders"},
        [("orders", "k", f'{{"n":{n}}}', {"record_type": "shop.Placed"}) for n in (3, 2)],
    ),
    "spring-modulith": Case(
        """CREATE TABLE EVENT_PUBLICATION (ID VARCHAR(36) NOT NULL PRIMARY KEY,
        LISTENER_ID VARCHAR(512) NOT NULL,
        EVENT_TYPE VARCHAR(512) NOT NULL, SERIALIZED_EVENT VARCHAR(4000) NOT NULL,
        PUBLICATION_DATE TIMESTAMP(6) NOT NULL, COMPLETION_DATE TIMESTAMP(6) DEFAULT NULL NULL,
        STATUS VARCHAR(20), COMPLETION_ATTEMPTS INT,
        LAST_RESUBMISSION_DATE TIMESTAMP(6) DEFAULT NULL NULL)""",
        tuple(
            f"""INSERT INTO EVENT_PUBLICATION VALUES (UUID(), '{listener}', 'shop.Placed',
        '{{"id":"o1","n":{n}}}',
            '2026-07-01 12:00:00.00000{9 - n}', {completed}, NULL, NULL, NULL)"""
            for n, listener, completed in (
                (1, LAYOUTS["spring-modulith"]["where"]["listener_id"][0], "NOW(6)"),
                (2, LAYOUTS["spring-modulith"]["where"]["listener_id"][0], "NULL"),
                (3, LAYOUTS["spring-modulith"]["where"]["listener_id"][1], "NULL"),
                (4, "shop.Mailer.on(shop.Placed)", "NULL"),
            )
        ),
        {"table": "EVENT_PUBLICATION", "topic": "orders", "key": "serialized_event->id"},
        [("orders", "o1", f'{{"id":"o1","n":{n}}}', {"event_type": "shop.Placed"}) for n in (3, 2)],
    ),
    "watermill": Case(
        """CREATE TABLE watermill_orders (`offset` BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
        uuid VARCHAR(36) NOT NULL,
        created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, payload JSON, metadata JSON)""",
        tuple(
            f"""INSERT INTO watermill_orders (uuid, payload, metadata) VALUES ('u{n}', '[{n}]',
        '{{"key": "k"}}')"""
            for n in (1, 2)
        ),
        {"table": "watermill_orders", "topic": "orders", "key": "metadata->key"},
        [("orders", "k", f"[{n}]", {"_watermill_message_uuid": f"u{n}", "key": "k"}) for n in (1, 2)],
    ),
}


class Hands:
    """An outbox, an application's connection, and what takes in."""

    def __init__(self, box: Box) -> None:
        box.dialect.create()
        self.box = box
        self.application = box.application()

    def execute(self, *statements: str) -> None:
        for statement in statements:
            self.application.cursor().execute(statement)
        self.application.commit()

    def dialect(self, intake: Intake) -> MySqlDialect:
        return MySqlDialect(replace(self.box.options, intake=intake))

    def said(self, intake: Intake) -> list[Finding]:
        return [each for each in self.dialect(intake).check() if each.subject == "intake"]

    def taken(self, intake: Intake) -> list[tuple[Any, ...]]:
        """Takes all in, and returns and deletes what the outbox has then."""
        with closing(self.dialect(intake).intakes()) as intakes:
            token = self.box.connect().bump(1, "test")
            while intakes.take(token, 2**30):
                pass
        table, cursor = self.box.options.table, self.application.cursor()
        cursor.execute(
            "SELECT kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values"
            f" FROM {table} ORDER BY id"
        )
        rows = cursor.fetchall()
        self.execute(f"DELETE FROM {table}")
        return [(*row[:3], dict(zip(*map(json.loads, row[3:]), strict=True))) for row in rows]


@pytest.fixture
def hands(under: OutboxUnderTest) -> Iterator[Hands]:
    with ExitStack() as stack:
        yield Hands(Box(under, stack))


def test_a_tools_table_is_taken_in_by_name(hands: Hands) -> None:
    for name, case in CASES.items():
        intake = Intake(layout=name, **case.intake)
        hands.execute(f"DROP TABLE IF EXISTS {intake.table}", case.ddl, *case.rows)
        assert [each for each in hands.said(intake) if each.level is Level.ERROR] == []
        assert hands.taken(intake) == case.taken, name
        cursor = hands.application.cursor()
        cursor.execute(f"SELECT COUNT(*) FROM {intake.table}")
        assert cursor.fetchone() == (len(case.rows) - len(case.taken),), name
        hands.execute(f"DROP TABLE {intake.table}")


def test_whole_seconds_are_refused_as_an_order(hands: Hands) -> None:
    case = CASES["namastack"]
    intake = Intake(layout="namastack", **case.intake)
    hands.execute("DROP TABLE IF EXISTS outbox_record", case.ddl.replace("TIMESTAMP(6)", "TIMESTAMP"))
    [error] = hands.said(intake)
    assert (error.level, "'created_at' holds moments of whole seconds" in error.message) == (
        Level.ERROR,
        True,
    )
    with (
        closing(hands.dialect(intake).intakes()) as intakes,
        pytest.raises(DriverError, match="whole seconds"),
    ):
        intakes.require()
    hands.execute("ALTER TABLE outbox_record MODIFY created_at TIMESTAMP(6) NOT NULL")
    assert Level.ERROR not in {each.level for each in hands.said(intake)}
    hands.execute("DROP TABLE outbox_record")


TYPES = {
    "BINARY(16)": (f"X'{ID.hex}'", str(ID)),
    "VARBINARY(20)": ("X'616E6E00'", "616e6e00"),
    "TIMESTAMP(3)": ("'2026-07-01 04:00:00.25'", "2026-07-01T04:00:00.25Z"),
    "DATETIME(6)": ("'2026-07-01 12:00:00'", "2026-07-01T10:00:00Z"),
    "DATETIME(3)": ("'2026-01-01 12:00:00.005'", "2026-01-01T11:00:00.005Z"),
    "DATE": ("'2026-07-01'", "2026-07-01"),
    "TIME": ("'12:30'", "12:30:00"),
    "DECIMAL(12, 3)": ("0.1", "0.100"),
    "DECIMAL(20, 9)": ("0.000000001", "0.000000001"),
    "DOUBLE": ("1e22", "1e+22"),
    "DOUBLE ": ("3", "3.0"),
    "FLOAT": ("0.1", "0.1"),
    "TINYINT(1)": ("TRUE", "1"),
    "BIT(1)": ("b'1'", "true"),
    "BIT(1) ": ("b'0'", "false"),
    "BIGINT": ("-7", "-7"),
    "VARCHAR(9)": ("'2026-7'", "2026-7"),
}


def test_each_type_has_its_text(hands: Hands) -> None:
    names = [f"c{number}" for number in range(len(TYPES))]
    columns = ", ".join(f"{name} {type_} NULL" for name, type_ in zip(names, TYPES, strict=True))
    values = ", ".join(value for value, _ in TYPES.values())
    hands.execute(
        "DROP TABLE IF EXISTS odd",
        f"CREATE TABLE odd (id BIGINT AUTO_INCREMENT PRIMARY KEY, {columns}, v TEXT)",
        "SET time_zone = '+00:00'",
        f"INSERT INTO odd ({', '.join(names)}) VALUES ({values})",
        "INSERT INTO odd (v) VALUES (NULL)",
    )
    intake = Intake(
        table="odd",
        id="id",
        topic="t",
        key="c0|c1",
        value="v",
        headers={name: name for name in names},
        zone="Europe/Berlin",
    )
    first, nulls = hands.taken(intake)
    assert first[3] == dict(zip(names, (text for _, text in TYPES.values()), strict=True))
    assert (first[1], nulls[1], nulls[3]) == (str(ID), "", dict.fromkeys(names))
    hands.execute("DROP TABLE odd")


def test_what_would_be_wrong_without_an_error_is_said(hands: Hands) -> None:
    hands.execute(
        "DROP TABLE IF EXISTS odd",
        "CREATE TABLE odd (id INT AUTO_INCREMENT PRIMARY KEY, n BIGINT, u CHAR(36), at DATETIME(3), k TEXT,"
        " processed TINYINT(1), INDEX (n), INDEX (u))",
        "SET time_zone = '+00:00'",
        "INSERT INTO odd (n, u, at) VALUES (1, UUID(), NOW(3) + INTERVAL 8 HOUR)",
        "INSERT INTO odd (id, n, u, k) VALUES (2000000000, 2, UUID(), 'k')",
    )
    plain: dict[str, Any] = {"table": "odd", "topic": "t", "key": "k", "value": "k"}
    found = {each.message: each.level for each in hands.said(Intake(id="id", **plain))}
    assert {message.replace("int(11)", "int"): level for message, level in found.items()} == {
        "'processed' of table odd may say that a row was sent": Level.ERROR,
        "rows of table odd can be taken in, in the order of 'id' (int)": Level.OK,
        "1 of 2 rows of table odd have no key, and go to one partition": Level.WARNING,
        "'id' of table odd is at 2,000,000,000 of 2,147,483,647: 93%": Level.WARNING,
    }
    told = Intake(id="n", where={"processed": None}, **{**plain, "key": "u"})
    [order] = hands.said(told)
    assert (order.level, "comes in blocks" in order.message) == (Level.WARNING, True)
    [error] = hands.said(replace(told, id="id", order="u"))
    assert (error.level, "UUIDs whose order is not that of time" in error.message) == (Level.ERROR, True)
    hands.execute(
        "DROP TABLE odd",
        "CREATE TABLE odd (id BIGINT AUTO_INCREMENT PRIMARY KEY, u BINARY(16), k TEXT)",
        *(
            f"INSERT INTO odd (u, k) VALUES (X'11f0a1b2c3d4e5f6a7b8c9d0e1f2a3{n:02x}', 'k')"
            for n in range(20)
        ),
    )
    [swapped] = hands.said(Intake(id="id", order="u", **plain))
    assert (swapped.level, "UUIDs of one millisecond" in swapped.message) == (Level.WARNING, True)
    hands.execute("DROP TABLE odd")
