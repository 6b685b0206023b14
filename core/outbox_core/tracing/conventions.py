"""What metrics and spans call their attributes: one name for one thing.

``messaging.*`` and ``error.type`` are of OpenTelemetry's conventions, which change; ``outbox.*`` is ours.
None has a key, a value, or anything else of a record but its topic.
"""

from __future__ import annotations

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
"""The version of the conventions. A new one is a change of this file, and of ``docs/monitoring.md``."""

SYSTEM = "messaging.system"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION = "messaging.destination.name"
BATCH_MESSAGE_COUNT = "messaging.batch.message_count"
ERROR_TYPE = "error.type"

SEND = "send"
"""Name and type of the operation."""
ERROR_OTHER = "_OTHER"
"""The error type of the conventions for errors that are not told apart."""

OUTBOX = "outbox.name"
LANE = "outbox.lane"
STEP = "outbox.step"
TOKEN = "outbox.fence.token"  # noqa: S105 - the name of an attribute, and of a metric
FAILED = "outbox.failed"
"""Records that were not delivered: an attribute of a span, and a metric."""
