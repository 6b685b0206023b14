"""The attributes of CloudEvents 1.0 as headers of a record: the binary mode of its binding for Kafka."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

from outbox_api.base.errors import RecordError
from outbox_api.base.record import Header


def event_headers(
    *,
    source: str,
    type: str,  # noqa: A002 - CloudEvents' name
    id: str | None = None,  # noqa: A002 - likewise
    time: datetime | None = None,
    content_type: str | None = "application/json",
) -> tuple[Header, ...]:
    """Returns the headers of an event; the record's value is its data.

    Args:
        source: Where it happened, as a URI or a part of one: with the id it identifies the event.
        type: What happened.
        id: Identifies the event; made anew if not given.
        time: When it happened, with a time zone; now if not given.
        content_type: The media type of the value; ``None`` for none.

    Raises:
        RecordError: One of them is empty, or the time has no time zone.
    """
    time = datetime.now(UTC) if time is None else time
    if time.tzinfo is None:
        raise RecordError("the time of an event needs a time zone: datetime.now(UTC)")
    attributes = {
        "ce_specversion": "1.0",
        "ce_source": source,
        "ce_type": type,
        "ce_id": str(uuid4()) if id is None else id,
        "ce_time": time.isoformat(),
    } | ({} if content_type is None else {"content-type": content_type})
    if empty := [name for name, value in attributes.items() if not value]:
        raise RecordError(f"an event's {empty[0].removeprefix('ce_')} is text, and not empty")
    return tuple(attributes.items())
