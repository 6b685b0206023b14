"""Tables of other tools: what their columns mean, by the tools' names. Data only; see ``Intake``.

A layout without ``topic`` or ``key`` belongs to a tool whose tables have none, as code of the application
chooses them; the intake must say them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_MODULITH = "org.springframework.modulith.events.support"

LAYOUTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "brighter": {
        "id": "id",
        "topic": "{topic}",
        "key": "partitionkey",
        "value": "body",
        "headers": {
            "MessageType": "messagetype",
            "Topic": "topic",
            "MessageId": "messageid",
            "TimeStamp": "timestamp",
            "ContentType": "contenttype",
            "CorrelationId": "correlationid",
            "ce_id": "messageid",
            "ce_specversion": "specversion",
            "ce_type": "type",
            "ce_source": "source",
            "ce_time": "timestamp",
        },
        "headers_json": "headerbag",
        "where": {"dispatched": None},
    },
    "cap": {
        "id": "Id",
        "topic": "{Name}",
        "key": "Content->Headers.cap-kafka-key | Id",
        "value": "Content->Value",
        "headers_json": "Content->Headers",
        "where": {"StatusName": ["Scheduled", "Queued", "Failed"]},
    },
    # Debezium's outbox event router, by its defaults.
    "debezium": {
        "id": "id",
        "topic": "outbox.event.{aggregatetype}",
        "key": "aggregateid",
        "value": "payload",
        "headers": {"id": "id"},
    },
    "django-outbox-pattern": {
        "id": "id",
        "order": "added",
        "value": "body",
        "headers_json": "headers",
        "where": {"status": "1"},
    },
    "eventuate-local": {
        "id": "event_id",
        "order": "event_id",
        "topic": "{entity_type}",
        "key": "entity_id",
        "value": "event_data",
        "headers": {
            "event_id": "event_id",
            "event_type": "event_type",
            "triggering_event": "triggering_event",
            "metadata": "metadata",
        },
        "where": {"published": "0"},
    },
    "eventuate-tram": {
        "id": "id",
        "order": "id",
        "topic": "{destination}",
        "key": "headers->PARTITION_ID | headers->ID | id",
        "value": "payload",
        "headers_json": "headers",
        "where": {"published": "0"},
    },
    "faststream-outbox": {
        "id": "id",
        "topic": "{queue}",
        "value": "payload",
        "headers_json": "headers",
        "where": {"acquired_token": None},
    },
    "goharvest": {
        "id": "id",
        "topic": "{kafka_topic}",
        "key": "kafka_key",
        "value": "kafka_value",
        "header_names": "kafka_header_keys",
        "header_values": "kafka_header_values",
    },
    "masstransit": {
        "id": "SequenceNumber",
        "value": "Body",
        "headers": {
            "MessageId": "MessageId",
            "ContentType": "ContentType",
            "CorrelationId": "CorrelationId",
            "ConversationId": "ConversationId",
        },
        "headers_json": "Headers",
    },
    "namastack": {
        "id": "id",
        "order": "created_at",
        "key": "record_key",
        "value": "payload",
        "headers": {"record_type": "record_type"},
        "headers_json": "context",
        "where": {"status": "NEW"},
    },
    "spring-modulith": {
        "id": "id",
        "order": "publication_date",
        "value": "serialized_event",
        "headers": {"event_type": "event_type"},
        # An event has a row for each of its listeners; these are the ones that send it to a broker.
        "where": {
            "completion_date": None,
            "listener_id": [
                f"{_MODULITH}.DelegatingEventExternalizer.externalize(java.lang.Object)",
                f"{_MODULITH}.EventExternalizerModuleListener.externalize(java.lang.Object)",
            ],
        },
    },
    "tomorrow-one": {
        "id": "id",
        "topic": "{topic}",
        "key": "key",
        "value": "value",
        "headers_json": "headers",
        "where": {"processed": None},
    },
    "watermill": {
        "id": "offset",
        "value": "payload",
        "headers": {"_watermill_message_uuid": "uuid"},
        "headers_json": "metadata",
    },
    "watermill-queue": {
        "id": "offset",
        "value": "payload",
        "headers": {"_watermill_message_uuid": "uuid"},
        "headers_json": "metadata",
        "where": {"acked": False},
    },
}
"""Layouts that are known by name."""
