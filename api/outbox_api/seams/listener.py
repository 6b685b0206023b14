"""The contract of a listener, which receives the events of a harvest."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class HarvestEvent:
    """An event of a harvest, without secrets.

    Attributes:
        event: Its name, such as ``LeaderAcquired``; docs/events.md has all, with their fields.
        at: When it happened, in UTC.
        outbox: What users call the outbox.
        purged: Records that this leadership has delivered and purged so far.
        fields: The event's fields, name → value; those that have fields are mappings, too.
    """

    event: str
    at: datetime
    outbox: str
    purged: int
    fields: Mapping[str, Any]


class Listener(Protocol):
    """Receives events, one after the other, on a thread of its own; no harvest waits for it.

    Attributes:
        events: The names of the events that it receives.
    """

    events: Collection[str]

    def handle(self, happened: HarvestEvent) -> None:
        """Takes an event; events that come while it works wait, up to a number, and are dropped then.

        Raises:
            DriverError: It is tried again, in the same order, if the error is retryable, and dropped if not.
                The message contains no secrets.
            Exception: A defect; the event is dropped.
        """
        ...
