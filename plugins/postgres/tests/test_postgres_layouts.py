"""Tables of other tools, as these make them and write them, are taken in by their layout's name."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from outbox_api import Intake, Level
from outbox_api.intake.layouts import LAYOUTS
from outbox_postgres import PostgresDialect

from .outbox_hands import MakeOutbox, Outbox

ID = UUID("0194f3a6-0000-4000-8000-000000000001")


class Case(NamedTuple):
    """A table, what a user writes of it, and its rows that wait: topic, key, value, headers.

    Attributes:
        ddl: The statement that creates it.
        rows: Statements that write its rows.
        intake: What a user writes.
        taken: What is taken in.
        bytes: Whether values are bytes.
    """

    ddl: str
    rows: tuple[str, ...]
    intake: dict[str, Any]
    taken: list[tuple[str, str, str | bytes | None, dict[str, str | None]]]
    bytes: bool = False


BRIGHTER = Case(
    """CREATE TABLE brighter_outbox (id BIGSERIAL PRIMARY KEY, messageid VARCHAR(255) UNIQUE NOT NULL,
    topic VARCHAR(255), messagetype VARCHAR(32), timestamp TIMESTAMPTZ, correlationid VARCHAR(255),
    replyto VARCHAR(255), contenttype VARCHAR(128), partitionkey VARCHAR(128), workflowid VARCHAR(255),
    jobid VARCHAR(255), dispatched TIMESTAMPTZ, headerbag TEXT, body TEXT, source VARCHAR(255),
    type VARCHAR(255),
    dataschema VARCHAR(255), subject VARCHAR(255), traceparent VARCHAR(255), tracestate VARCHAR(255),
    baggage TEXT,
    dataref VARCHAR(255), causationid VARCHAR(255), specversion VARCHAR(255))""",
    tuple(
        f"""INSERT INTO brighter_outbox (messageid, topic, messagetype, timestamp, correlationid, contenttype,
        partitionkey, dispatched, headerbag, body, source, type, specversion) VALUES ('m{n}', 'orders',
        'MT_EVENT',
        '2026-07-01 12:00:00.25+02', 'c', 'application/json', 'k', {sent}, '{{"tenant": "t"}}',
        '{{"n": {n}}}',
        'http://shop', 'Placed', '1.0')"""
        for n, sent in enumerate(("now()", "NULL", "NULL"))
    ),
    {"table": "brighter_outbox"},
    [
        (
            "orders",
            "k",
            f'{{"n": {n}}}',
            {
                "MessageType": "MT_EVENT",
                "Topic": "orders",
                "MessageId": f"m{n}",
                "TimeStamp": "2026-07-01T10:00:00.25Z",
                "ContentType": "application/json",
                "CorrelationId": "c",
                "ce_id": f"m{n}",
                "ce_specversion": "1.0",
                "ce_type": "Placed",
                "ce_source": "http://shop",
                "ce_time": "2026-07-01T10:00:00.25Z",
                "tenant": "t",
            },
        )
        for n in (1, 2)
    ],
)

CAP = Case(
    """CREATE TABLE cap.published ("Id" BIGINT PRIMARY KEY, "Version" VARCHAR(20) NOT NULL,
    "Name" VARCHAR(200) NOT NULL, "Content" TEXT, "Retries" INT NOT NULL, "Added" TIMESTAMP NOT NULL,
    "ExpiresAt" TIMESTAMP, "StatusName" VARCHAR(50) NOT NULL)""",
    tuple(
        f"""INSERT INTO cap.published VALUES ({n}, 'v1', 'shop.orders',
        '{{"Headers":{{"cap-msg-id":"{n}"{key}}},
        "Value":{value}}}', 0, '2026-07-01 12:00:00', NULL, '{status}')"""
        for n, status, key, value in (
            (1, "Succeeded", "", "1"),
            (4, "Queued", "", '"a text"'),
            (3, "Scheduled", "", "null"),
            (2, "Failed", ',"cap-kafka-key":"k"', '{"n":2,"price":1.10}'),
            (5, "Delayed", "", "5"),
        )
    ),
    {"table": "cap.published"},
    [
        ("shop.orders", "k", '{"n":2,"price":1.10}', {"cap-msg-id": "2", "cap-kafka-key": "k"}),
        ("shop.orders", "3", None, {"cap-msg-id": "3"}),
        ("shop.orders", "4", '"a text"', {"cap-msg-id": "4"}),
    ],
)

DJANGO = Case(
    """CREATE TABLE published (id UUID PRIMARY KEY, version VARCHAR(100), destination VARCHAR(255) NOT NULL,
    body JSONB NOT NULL, added TIMESTAMPTZ NOT NULL, expires_at TIMESTAMPTZ NOT NULL, retry INT NOT NULL,
    status INT NOT NULL, headers JSONB NOT NULL)""",
    tuple(
        f"""INSERT INTO published VALUES (gen_random_uuid(), NULL, '/topic/orders', '{{"id": {n}}}',
        '2026-07-01 12:00:00.00000{9 - n}+00', now(), 0, {status}, '{{"dop-msg-type": "Published"}}')"""
        for n, status in ((1, 2), (2, 1), (3, 1), (4, -1))
    ),
    {"table": "published", "topic": "orders", "key": "body->id"},
    [("orders", str(n), f'{{"id": {n}}}', {"dop-msg-type": "Published"}) for n in (3, 2)],
)

EVENTUATE_LOCAL = Case(
    """CREATE TABLE eventuate.events (event_id VARCHAR(1000) PRIMARY KEY, event_type VARCHAR(1000),
    event_data VARCHAR(1000) NOT NULL, entity_type VARCHAR(1000) NOT NULL, entity_id VARCHAR(1000) NOT NULL,
    triggering_event VARCHAR(1000), metadata VARCHAR(1000), published SMALLINT DEFAULT 0)""",
    tuple(
        f"""INSERT INTO eventuate.events VALUES ('0000018cfcc3c8a{n}-66f8c7df475c0000', 'shop.Placed',
        '{{"n":{n}}}',
        'shop.Order', 'o1',
        NULL, NULL, {int(n == 2)})"""
        for n in (3, 2, 1)
    ),
    {"table": "eventuate.events"},
    [
        (
            "shop.Order",
            "o1",
            f'{{"n":{n}}}',
            {
                "event_id": f"0000018cfcc3c8a{n}-66f8c7df475c0000",
                "event_type": "shop.Placed",
                "triggering_event": None,
                "metadata": None,
            },
        )
        for n in (1, 3)
    ],
)

_TRAM_COLUMNS = (
    "destination TEXT NOT NULL, headers {json} NOT NULL, payload {json} NOT NULL, published SMALLINT"
    " DEFAULT 0, message_partition SMALLINT, creation_time BIGINT"
)
_TRAM_TAKEN: list[tuple[str, str, str | bytes | None, dict[str, str | None]]] = [
    ("orders", "o1", '{"n":1}', {"PARTITION_ID": "o1"}),
    ("orders", "m3", '{"n":3}', {"ID": "m3"}),
]
TRAM = Case(
    f"CREATE TABLE eventuate.message (id VARCHAR(1000) PRIMARY KEY, {_TRAM_COLUMNS.format(json='TEXT')})",
    (
        """INSERT INTO eventuate.message VALUES ('0000018cfcc3c8a3-66f8c7df475c0000', 'orders',
        '{"ID":"m3"}', '{"n":3}', 0, NULL, 1)""",
        """INSERT INTO eventuate.message VALUES ('0000018cfcc3c8a2-66f8c7df475c0000', 'orders',
        '{"ID":"m2"}', '{"n":2}', 1, NULL, 1)""",
        """INSERT INTO eventuate.message VALUES ('0000018cfcc3c8a1-66f8c7df475c0000', 'orders',
        '{"PARTITION_ID":"o1"}', '{"n":1}', 0, NULL, 1)""",
    ),
    {"table": "eventuate.message"},
    _TRAM_TAKEN,
)
TRAM_DATABASE_IDS = Case(
    "CREATE TABLE eventuate.message (dbid BIGSERIAL PRIMARY KEY, id VARCHAR(1000),"
    f" {_TRAM_COLUMNS.format(json='JSON')})",
    tuple(
        f"""INSERT INTO eventuate.message (id, destination, headers, payload, published)
        VALUES ('', 'orders', '{headers}', '{{"n":{n}}}', {int(n == 2)})"""
        for n, headers in ((1, '{"PARTITION_ID":"o1"}'), (2, "{}"), (3, "{}"))
    ),
    {
        "table": "eventuate.message",
        "id": "dbid",
        "order": "dbid",
        "key": "headers->PARTITION_ID | dbid",
        "headers": {"ID": "dbid"},
    },
    [
        ("orders", "o1", '{"n":1}', {"ID": "1", "PARTITION_ID": "o1"}),
        ("orders", "3", '{"n":3}', {"ID": "3"}),
    ],
)

FASTSTREAM = Case(
    """CREATE TABLE fast (id BIGSERIAL PRIMARY KEY, queue VARCHAR(255) NOT NULL, payload BYTEA NOT NULL,
    headers JSONB,
    attempts_count BIGINT NOT NULL DEFAULT 0, deliveries_count BIGINT NOT NULL DEFAULT 0,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(), next_attempt_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    first_attempt_at TIMESTAMPTZ, last_attempt_at TIMESTAMPTZ, acquired_at TIMESTAMPTZ, acquired_token UUID,
    timer_id VARCHAR(255), CHECK ((acquired_token IS NULL) = (acquired_at IS NULL)))""",
    (
        f"""INSERT INTO fast (queue, payload, acquired_at, acquired_token)
        VALUES ('orders', 'x', now(), '{ID}')""",
        """INSERT INTO fast (queue, payload, headers)
        VALUES ('orders', '\\xff00', '{"key": "k", "content-type": "text/plain"}')""",
        "INSERT INTO fast (queue, payload) VALUES ('orders', '\\x01')",
    ),
    {"table": "fast", "key": "headers->key"},
    [
        ("orders", "k", b"\xff\0", {"key": "k", "content-type": "text/plain"}),
        ("orders", "", b"\x01", {}),
    ],
    bytes=True,
)

FORK = Case(
    """CREATE TABLE kafka_outbox (id BIGSERIAL PRIMARY KEY,
    create_time TIMESTAMPTZ NOT NULL DEFAULT CURRENT_TIMESTAMP,
    kafka_topic TEXT NOT NULL, kafka_key TEXT, kafka_value BYTEA NOT NULL, kafka_header_keys TEXT[] NOT NULL,
    kafka_header_values TEXT[] NOT NULL)""",
    (
        """INSERT INTO kafka_outbox (kafka_topic, kafka_key, kafka_value, kafka_header_keys,
        kafka_header_values)
        VALUES ('orders', 'k', '\\xff', '{a,"b ,"}', '{"x\\"y",NULL}')""",
        """INSERT INTO kafka_outbox (kafka_topic, kafka_value, kafka_header_keys, kafka_header_values)
        VALUES ('orders', '', '{}', '{}')""",
    ),
    {"table": "kafka_outbox"},
    [("orders", "k", b"\xff", {"a": 'x"y', "b ,": None}), ("orders", "", b"", {})],
    bytes=True,
)

MASSTRANSIT = Case(
    """CREATE TABLE "OutboxMessage" ("SequenceNumber" BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    "EnqueueTime" TIMESTAMPTZ, "SentTime" TIMESTAMPTZ NOT NULL, "Headers" TEXT, "Properties" TEXT,
    "InboxMessageId" UUID, "InboxConsumerId" UUID, "OutboxId" UUID, "MessageId" UUID NOT NULL,
    "ContentType" VARCHAR(256) NOT NULL, "MessageType" TEXT NOT NULL, "Body" TEXT NOT NULL,
    "ConversationId" UUID,
    "CorrelationId" UUID, "InitiatorId" UUID, "RequestId" UUID, "SourceAddress" VARCHAR(256),
    "DestinationAddress" VARCHAR(256), "ResponseAddress" VARCHAR(256), "FaultAddress" VARCHAR(256),
    "ExpirationTime" TIMESTAMPTZ)""",
    tuple(
        f"""INSERT INTO "OutboxMessage" ("SentTime", "Headers", "MessageId", "ContentType", "MessageType",
        "Body")
        VALUES (now(), '{{"tenant": "t"}}', '{ID}', 'application/vnd.masstransit+json',
        'urn:message:Shop:Placed',
        '{{"message": {{"orderId": "o1", "n": {n}}}}}')"""
        for n in (1, 2)
    ),
    {"table": '"OutboxMessage"', "topic": "orders", "key": "Body->message.orderId"},
    [
        (
            "orders",
            "o1",
            f'{{"message": {{"orderId": "o1", "n": {n}}}}}',
            {
                "MessageId": str(ID),
                "ContentType": "application/vnd.masstransit+json",
                "CorrelationId": None,
                "ConversationId": None,
                "tenant": "t",
            },
        )
        for n in (1, 2)
    ],
)

NAMASTACK = Case(
    """CREATE TABLE outbox_record (id VARCHAR(255) PRIMARY KEY, status VARCHAR(20) NOT NULL,
    record_key VARCHAR(255) NOT NULL, record_type VARCHAR(255) NOT NULL, payload TEXT NOT NULL, context TEXT,
    created_at TIMESTAMPTZ NOT NULL, completed_at TIMESTAMPTZ, failure_count INT NOT NULL,
    failure_reason VARCHAR(1000), next_retry_at TIMESTAMPTZ NOT NULL, partition_no INTEGER NOT NULL,
    handler_id VARCHAR(1000) NOT NULL)""",
    tuple(
        f"""INSERT INTO outbox_record VALUES (gen_random_uuid(), '{status}', 'k', 'shop.Placed',
        '{{"n":{n}}}',
        '{{"tenant": "t"}}', '2026-07-01 12:00:00.00000{9 - n}+00', NULL, 0, NULL, now(), 7, 'h')"""
        for n, status in ((1, "COMPLETED"), (2, "NEW"), (3, "NEW"), (4, "FAILED"))
    ),
    {"table": "outbox_record", "topic": "orders"},
    [("orders", "k", f'{{"n":{n}}}', {"record_type": "shop.Placed", "tenant": "t"}) for n in (3, 2)],
)

_LISTENERS = LAYOUTS["spring-modulith"]["where"]["listener_id"]


def _modulith(more: str, given: str) -> Case:
    return Case(
        f"""CREATE TABLE event_publication (id UUID PRIMARY KEY, listener_id TEXT NOT NULL,
        event_type TEXT NOT NULL,
        serialized_event TEXT NOT NULL, publication_date TIMESTAMPTZ NOT NULL,
        completion_date TIMESTAMPTZ{more})""",
        tuple(
            f"""INSERT INTO event_publication VALUES (gen_random_uuid(), '{listener}', 'shop.Placed',
            '{{"order":{{"id":"o1"}},"n":{n}}}', '2026-07-01 12:00:00.00000{9 - n}+00', {completed}{given})"""
            for n, listener, completed in (
                (1, _LISTENERS[0], "now()"),
                (2, _LISTENERS[0], "NULL"),
                (3, _LISTENERS[1], "NULL"),
                (4, "shop.Mailer.on(shop.Placed)", "NULL"),
            )
        ),
        {
            "table": "event_publication",
            "topic": "shop.{event_type}",
            "key": "serialized_event->order.id",
        },
        [
            ("shop.shop.Placed", "o1", f'{{"order":{{"id":"o1"}},"n":{n}}}', {"event_type": "shop.Placed"})
            for n in (3, 2)
        ],
    )


TOMORROW = Case(
    """CREATE TABLE outbox_kafka (id BIGSERIAL PRIMARY KEY, created TIMESTAMP NOT NULL, processed TIMESTAMP,
    topic VARCHAR(128) NOT NULL, key VARCHAR(128), value BYTEA NOT NULL, headers JSONB)""",
    tuple(
        f"""INSERT INTO outbox_kafka (created, processed, topic, key, value, headers)
        VALUES (now(), {processed}, 'orders', 'k', '\\x0{n}ff', '{{"h": "v"}}')"""
        for n, processed in ((1, "now()"), (2, "NULL"), (3, "NULL"))
    ),
    {"table": "outbox_kafka"},
    [("orders", "k", bytes([n, 255]), {"h": "v"}) for n in (2, 3)],
    bytes=True,
)

WATERMILL = Case(
    """CREATE TABLE watermill_orders ("offset" BIGSERIAL, uuid VARCHAR(36) NOT NULL,
    created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, payload JSON, metadata JSON,
    transaction_id XID8 NOT NULL,
    PRIMARY KEY (transaction_id, "offset"))""",
    tuple(
        f"""INSERT INTO watermill_orders (uuid, payload, metadata, transaction_id)
        VALUES ('u{n}', '{{"n":  {n}}}', '{{"key": "k"}}', pg_current_xact_id())"""
        for n in (1, 2)
    ),
    {"table": "watermill_orders", "topic": "orders", "key": "metadata->key"},
    [("orders", "k", f'{{"n":  {n}}}', {"_watermill_message_uuid": f"u{n}", "key": "k"}) for n in (1, 2)],
)
WATERMILL_QUEUE = Case(
    """CREATE TABLE watermill_orders ("offset" SERIAL PRIMARY KEY, uuid VARCHAR(36) NOT NULL, payload JSON,
    metadata JSON,
    acked BOOLEAN NOT NULL DEFAULT FALSE, created_at TIMESTAMPTZ NOT NULL DEFAULT CURRENT_TIMESTAMP)""",
    tuple(
        f"""INSERT INTO watermill_orders (uuid, payload, metadata, acked)
        VALUES ('u{n}', '{{"n":  {n}}}', '{{"key": "k"}}', {n == 1})"""
        for n in (1, 2, 3)
    ),
    {"table": "watermill_orders", "topic": "orders", "key": "metadata->key"},
    [("orders", "k", f'{{"n":  {n}}}', {"_watermill_message_uuid": f"u{n}", "key": "k"}) for n in (2, 3)],
)

CASES = {
    "brighter": BRIGHTER,
    "cap": CAP,
    "django-outbox-pattern": DJANGO,
    "eventuate-local": EVENTUATE_LOCAL,
    "eventuate-tram": TRAM,
    "eventuate-tram with ids of the database": TRAM_DATABASE_IDS,
    "faststream-outbox": FASTSTREAM,
    "goharvest": FORK,
    "masstransit": MASSTRANSIT,
    "namastack": NAMASTACK,
    "spring-modulith": _modulith("", ""),
    "spring-modulith 2": _modulith(
        ", status TEXT, completion_attempts INT, last_resubmission_date TIMESTAMPTZ", ", 'PUBLISHED', 0, NULL"
    ),
    "tomorrow-one": TOMORROW,
    "watermill": WATERMILL,
    "watermill-queue": WATERMILL_QUEUE,
}


def test_every_layout_has_a_case() -> None:
    # test_postgres_intake.py has Debezium's.
    assert {name.split()[0] for name in CASES} == LAYOUTS.keys() - {"debezium"}


def taken(box: Outbox, intake: Intake) -> list[tuple[Any, ...]]:
    """Takes all in, and returns and deletes what the outbox has then."""
    dialect = PostgresDialect(replace(box.options, intake=intake))
    dialect.create()
    with closing(dialect.intakes()) as intakes:
        token = box.connect().bump(1, "test")
        while intakes.take(token, 2**30):
            pass
    errors = [each for each in dialect.check() if each.subject == "intake" and each.level is Level.ERROR]
    assert errors == []
    rows = box.admin.execute(
        "WITH gone AS (DELETE FROM outbox RETURNING *) SELECT kafka_topic, kafka_key, kafka_value,"
        " kafka_header_keys, kafka_header_values FROM gone ORDER BY id"
    ).fetchall()
    return [(*row[:3], dict(zip(*row[3:], strict=True))) for row in rows]


@pytest.mark.parametrize("of_bytes", [False, True])
def test_a_tools_table_is_taken_in_by_name(make_outbox: MakeOutbox, *, of_bytes: bool) -> None:
    box = make_outbox(value_type="bytea" if of_bytes else "text")
    box.admin.execute("CREATE SCHEMA cap; CREATE SCHEMA eventuate")
    box.dialect.create()
    for name, case in CASES.items():
        if case.bytes is not of_bytes:
            continue
        intake = Intake(layout=name.split()[0], **case.intake)
        box.admin.execute(case.ddl)
        for row in case.rows:
            box.admin.execute(row)
        assert taken(box, intake) == case.taken, name
        left = box.admin.execute(f"SELECT count(*) FROM {intake.table}").fetchone()
        assert left == (len(case.rows) - len(case.taken),), name
        box.admin.execute(f"DROP TABLE {intake.table}")
