"""The read-only side of one outbox: what operators and monitors look at."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from outbox_sdk.affinity import Takeover
from outbox_sdk.backlog import Backlog, OriginBacklog
from outbox_sdk.fence import LaneStatus, TransactionalLane
from outbox_sdk.parking import Parked
from outbox_sdk.upkeep import Upkeep


class OutboxView(Protocol):
    """A connection that looks at one outbox, its fence and its dead letters; used by one thread at a time.

    Nothing here writes, locks or creates anything; the right to SELECT is enough.

    Every method raises ``DriverError`` if the database refuses or cannot be reached. After a retryable one
    the connection may be broken: close it and connect anew. A call on a connection that somebody has closed
    raises a retryable one, too.
    """

    @property
    def name(self) -> str:
        """The outbox's name with its schema, as the database knows it, however it was configured."""
        ...

    def known_identity(self) -> str | None:
        """Returns what :meth:`OutboxTable.identity` created; ``None`` before it is first asked for."""
        ...

    def transactional_lanes(self) -> dict[int, TransactionalLane]:
        """Returns the lanes that publish in transactions, as they may still after a crash.

        Returns:
            Lane → what was stored about it, ordered by lane. May contain lanes that no longer exist.
        """
        ...

    def parked(self) -> Parked:
        """Returns how much is parked; reads the parked keys only."""
        ...

    def lane_statuses(self) -> list[LaneStatus]:
        """Returns what the fence stores about each lane, ordered by lane; empty before the first leader."""
        ...

    def backlog(self) -> Backlog:
        """Returns how many records wait, without a full scan of a large table."""
        ...

    def origins(self) -> list[OriginBacklog]:
        """Returns how many records of each cluster of origin wait, without a full scan of a large table.

        Returns:
            One element for each cluster of which there are rows, ordered by cluster; also for clusters that
            nobody serves. Empty if the options name no :class:`outbox_sdk.Origin`.
        """
        ...

    def takeovers(self) -> list[Takeover]:
        """Returns the deliberate takeovers that have begun and not ended, ordered by cluster."""
        ...

    def upkeep(self) -> Upkeep:
        """Returns what waits to be removed from the outbox, and which old snapshot prevents it.

        Reads no rows of the outbox. What the database does not tell, or not this user, is missing in the
        result and no error.
        """
        ...

    def members(self, group: str, seconds: float) -> Mapping[str, int]:
        """Returns the members that noted themselves in the last ``seconds``, as ``Members.note`` does."""
        ...

    def now(self) -> datetime:
        """Returns the present time by the database's clock, with a time zone."""
        ...

    def close(self) -> None:
        """Disconnects. Idempotent, and never raises."""
        ...
