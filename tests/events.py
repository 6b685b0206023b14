"""A table that an application writes its records into instead of the outbox, and intakes of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from outbox_api import Record
from outbox_audit import SEQUENCE_HEADER

TABLE = "events"
INTAKES: Mapping[str, Mapping[str, Any]] = {
    "order": {"id": "id", "order": "seq"},
    "commits": {"id": "id"},
    "done": {"id": "seq", "done": {"sent": "1"}},
}
"""Name → what its rows are told apart and put in order by, and what becomes of those that are moved."""
UNSENT = "sent IS NULL"
"""Which rows of it wait, whatever the intake."""
INSERT = (
    f"INSERT INTO {TABLE} (id, topic, name, body, number)"
    " VALUES ({id}, {topic}, {name}, {body}, {number})"
)
_DDL = """
CREATE TABLE events (
    seq {numbered} PRIMARY KEY,
    id VARCHAR(36) NOT NULL UNIQUE,
    topic VARCHAR(249) NOT NULL,
    name VARCHAR(100) NOT NULL,
    body TEXT,
    number INTEGER,
    sent INTEGER
)
"""


def ddl(numbered: str) -> str:
    """Returns the statement that creates the table; ``numbered`` is the type of a number given out."""
    return _DDL.format(numbered=numbered)


def intake(name: str) -> Mapping[str, Any]:
    """Returns the dialect's option for an intake."""
    columns = {"topic": "{topic}", "key": "name", "value": "body", "headers": {SEQUENCE_HEADER: "number"}}
    return {"table": TABLE, **columns, **INTAKES[name]}


def row(record: Record) -> Mapping[str, object]:
    """Returns the values of a row."""
    number = int(dict(record.headers)[SEQUENCE_HEADER] or 0)
    return {
        "id": str(uuid4()),
        "topic": record.topic,
        "name": record.key,
        "body": record.value,
        "number": number,
    }
