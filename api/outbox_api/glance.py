"""One look at many outboxes of a database: which of those that rest have rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from outbox_api.fence import Fence

if TYPE_CHECKING:
    from outbox_api.dialect import Dialect


class RestingLane(NamedTuple):
    """A lane that rests: its outbox is empty, and the process that led it last would lead it again.

    Attributes:
        dialect: The outbox.
        fence: The lane's fence.
        metrics: What its heartbeats say.
    """

    dialect: Dialect
    fence: Fence
    metrics: Mapping[str, Any]


class Glance(Protocol):
    """A connection to several outboxes of one database, which their dialects name; used by one thread.

    It waits for a lock for a fraction of a second where the database permits so short a time, and fails as a
    whole if one of the outboxes cannot be looked at. The caller then connects anew and asks about each.

    Every method but ``close`` raises ``DriverError`` if the database refuses or cannot be reached.
    """

    def waiting(self, outboxes: Sequence[Dialect]) -> Sequence[bool]:
        """Returns for each outbox, in this order, whether it has any row. Changes nothing."""
        ...

    def heartbeats(self, lanes: Sequence[RestingLane]) -> Sequence[bool]:
        """Writes a heartbeat of each lane in one transaction.

        Returns:
            For each lane, in this order, whether its fence is still in force; nothing is written otherwise.
        """
        ...

    def close(self) -> None:
        """Disconnects. Idempotent, and never raises."""
        ...
