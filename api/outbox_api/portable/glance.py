"""Looks at many outboxes of one database over one connection."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from outbox_api.portable.session import Session
from outbox_api.portable.statements import Statements
from outbox_api.portable.view import read_lane_statuses
from outbox_api.seams.fence import Fence, LaneStatus


class RestingLane(NamedTuple):
    """A lane that rests: its outbox is empty, and the process that led it last would lead it again."""

    dialect: Any
    fence: Fence
    metrics: Mapping[str, Any]


class PortableGlance:
    """A connection to several outboxes of one database, which their dialects name; used by one thread.

    It waits for a lock for a fraction of a second where the database permits so short a time, and fails as a
    whole if one of the outboxes cannot be looked at. The caller then connects anew and asks about each.

    Every method but ``close`` raises ``DriverError`` if the database refuses or cannot be reached.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[Any, Statements] = {}

    def waiting(self, outboxes: Sequence[Any]) -> Sequence[bool]:
        """Returns for each outbox, in this order, whether it has any row. Changes nothing."""
        tables = [self._about(outbox).outbox for outbox in outboxes]
        read = self._session.idiom.snapshot_read
        firsts = [
            f"SELECT {place} AS place, MIN(id) AS first_id FROM {read(table)}"  # noqa: S608 - quoted
            for place, table in enumerate(tables)
        ]
        rows = self._session.query("look for records", " UNION ALL ".join(firsts)) if firsts else []
        return [first is not None for _, first in sorted(rows, key=lambda row: int(row[0]))]

    def heartbeats(self, lanes: Sequence[RestingLane]) -> Sequence[bool]:
        """Writes a heartbeat of each lane in one transaction.

        Returns:
            For each lane, in this order, whether its fence is still in force; nothing is written otherwise.
        """
        beats = [self._beat(lane) for lane in lanes]
        statements = {sql for sql, _ in beats}
        with self._session.transaction("write heartbeats"):
            # At best few round trips: in a process of many threads, each waits for the interpreter's lock.
            held = sum(
                self._session.execute_many(sql, [values for each, values in beats if each == sql])
                for sql in statements
            )
            if held == len(beats):
                return [True] * held
            return [self._session.execute(sql, **values) > 0 for sql, values in beats]

    def lane_statuses(self, outboxes: Sequence[Any]) -> Sequence[list[LaneStatus]]:
        """Returns for each outbox, in this order, what its fence stores about its lanes. Changes nothing."""
        return [read_lane_statuses(self._session, sql) for sql in map(self._about, outboxes)]

    def close(self) -> None:
        """Disconnects. Idempotent, and never raises."""
        self._session.close()

    def _beat(self, lane: RestingLane) -> tuple[str, dict[str, object]]:
        """Returns the statement and the values of a heartbeat."""
        sql, metrics = self._about(lane.dialect), json.dumps(dict(lane.metrics))
        return sql.heartbeat, {"name": sql.name, "metrics": metrics, **asdict(lane.fence)}

    def _about(self, outbox: Any) -> Statements:
        if outbox not in self._known:
            self._known[outbox] = Statements(outbox.idiom, outbox.names(self._session))
        return self._known[outbox]
