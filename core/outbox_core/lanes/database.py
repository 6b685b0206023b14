"""One connection of a lane to its outbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic

from outbox_api import Fence, OutboxTable, Parked, PermittedTopics

from outbox_core.delivery.coalescing import Coalesce, Coalesced
from outbox_core.lanes.housekeeping import Housekeeping
from outbox_core.lanes.kept_rows import KeptRows


class Database:
    """One loop's connection to the outbox; connects with the first request, and again after an error.

    ``table`` is used until the first error. ``about`` returns what heartbeats say besides metrics.
    """

    def __init__(
        self,
        connect: Callable[[], OutboxTable],
        topics: PermittedTopics,
        table: OutboxTable | None = None,
        *,
        about: Callable[[], Mapping[str, object]] = dict,
        kept: KeptRows | None = None,
        housekeeping: Housekeeping | None = None,
    ) -> None:
        self.topics = topics
        self.kept = kept or KeptRows()
        self._connect = connect
        self._table = table
        self._about = about
        self._housekeeping = housekeeping

    def table(self) -> OutboxTable:
        """Returns the outbox."""
        if self._table is None:
            self._table = self._connect()
        return self._table

    def coalesce(self, fence: Fence, look: Coalesce) -> Coalesced:
        """Deletes what is superseded in an outline; nothing else is done over this connection meanwhile."""
        table = self.table()
        outline = table.outline(fence, look.after, look.limit, look.topics)
        superseded = look.superseded(outline)
        number = table.supersede(fence, superseded) if superseded.runs else 0
        return Coalesced(outline.last, outline.read, number)

    def heartbeat(self, fence: Fence, metrics: Mapping[str, object]) -> Parked:
        """Writes a lane's metrics beside its fence for operators, and counts what is parked."""
        self.write_heartbeat(fence, metrics)
        table = self.table()
        parked = table.parked()
        if self._housekeeping is not None:
            self._housekeeping.work(table, monotonic())
        return parked

    def write_heartbeat(self, fence: Fence, metrics: Mapping[str, object]) -> None:
        """Writes a lane's metrics, and does nothing else."""
        overdue = self._housekeeping.about if self._housekeeping else {}
        self.table().heartbeat(fence, {**metrics, **self._about(), **overdue})

    def close(self) -> None:
        """Disconnects."""
        table, self._table = self._table, None
        if table is not None:
            table.close()
