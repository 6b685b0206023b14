"""Names of OpenTelemetry's conventions for messaging, which still change: those of version 1.44.0."""

from __future__ import annotations

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"

SYSTEM = "messaging.system"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION_NAME = "messaging.destination.name"
BATCH_MESSAGE_COUNT = "messaging.batch.message_count"
ERROR_TYPE = "error.type"

SEND = "send"
"""Name and type of the operation."""

# Ours, outside of the conventions' namespaces.
OUTBOX = "outbox.name"
LANE = "outbox.lane"
TOKEN = "outbox.fence.token"  # noqa: S105 - the name of an attribute
FAILED_RECORDS = "outbox.failed_records"
