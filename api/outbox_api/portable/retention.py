"""Removes what was kept for long enough, and makes the partitions of the days to come."""
# ruff: noqa: S608 - names come quoted from the idiom, and every value is a parameter

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from outbox_api.base.finding import Finding, Level
from outbox_api.portable.days import CHANGES, DAY, Days, Plan
from outbox_api.portable.keeping import Keep, holds_bytes, of_positions
from outbox_api.portable.partitions import divided_kept
from outbox_api.portable.session import Session
from outbox_api.portable.sources import quoted
from outbox_api.portable.tables import NEEDS, Tables
from outbox_api.seams.kept import Tended


@dataclass(slots=True)
class Retention:
    """Tends the kept records of one outbox, over a connection that others use, too.

    All times are the database's. Where there are partitions, records go once their whole day, in UTC, is
    older than ``keep.for``: up to a day later than elsewhere. What is of a day that could get no partition is
    deleted one by one.

    Args:
        session: The connection.
        tables: The tables of the outbox.
        keep: How long records are kept.
    """

    session: Session
    tables: Tables
    keep: Keep
    days: Days = field(init=False)
    _table: str = field(init=False)

    def __post_init__(self) -> None:
        self._table = quoted(self.session.idiom, self.tables.kept)
        self.days = Days(self.session, divided_kept(self.tables.kept))

    def tend(self, limit: int) -> Tended:
        """Does the work of :meth:`outbox_api.OutboxTable.tend_kept`."""
        before, plan = self.plan()
        faults = dict.fromkeys(self.days.change(plan))
        waiting = max(0, len(plan.expired) - CHANGES)
        # What the next calls drop is not deleted row by row.
        deleted = 0 if waiting and not faults else self._delete(before, limit)
        if overdue := self.remains(before - DAY):
            days = self.keep.for_ / DAY.total_seconds()
            faults[f"records are kept that were to go more than a day ago (keep.for is {days:g} days)"] = None
        return Tended(deleted, more=bool(waiting) or deleted >= limit, faults=tuple(faults), overdue=overdue)

    def plan(self) -> tuple[datetime, Plan]:
        """Returns before when records were delivered that are to go now, and what partitions are due."""
        now, keep = self.days.now(), timedelta(seconds=self.keep.for_)
        plan = self.days.plan(now, keep)
        before = now - keep
        return before.replace(hour=0, minute=0, second=0, microsecond=0) if plan.parted else before, plan

    def remains(self, before: datetime) -> bool:
        """Returns whether records are kept that were delivered before a time."""
        return bool(self._positions(before, 1))

    def _delete(self, before: datetime, limit: int) -> int:
        found = self._positions(before, limit)
        if not found:
            return 0
        idiom = self.session.idiom
        change = of_positions(idiom, self._table, "delivered_at < {before}")
        with self.session.transaction("delete what was kept for long enough"):
            return self.session.execute_by_ids(change, found, before=idiom.time_parameter(before))

    def _positions(self, before: datetime, limit: int) -> list[int]:
        idiom = self.session.idiom
        order = idiom.partitions.order if idiom.partitions else " ORDER BY delivered_at"
        seen = idiom.snapshot_read(self._table)
        query = idiom.limit(f"SELECT position FROM {seen} WHERE delivered_at < {{before}}{order}", "{limit}")
        rows = self.session.query(
            "look for what was kept for long enough", query, before=idiom.time_parameter(before), limit=limit
        )
        return [int(row[0]) for row in rows]


def retention_findings(session: Session, tables: Tables, keep: Keep) -> Iterator[Finding]:
    """Says what keeps records from being removed in time; the table is there, with its columns."""
    subject, kept = NEEDS["kept"].subject, tables.kept
    retention = Retention(session, tables, keep)
    before, plan = retention.plan()
    found: list[Finding] = []
    values = [holds_bytes(session, session.idiom, table) for table in (tables.outbox, kept)]
    if None not in values and len(set(values)) > 1:
        outboxs, own = ("bytes" if each else "texts" for each in values)
        seen = f"kafka_value of {kept} holds {own}, and that of the outbox {outboxs}"
        cure = "while no harvester runs, give it the type of the outbox's, or drop it and run 'outbox init'"
        found.append(Finding(Level.ERROR, subject, seen, cure))
    found += retention.days.findings(subject, plan)
    yield from found
    if retention.remains(before - DAY):
        seen = f"{kept} has records that were to go more than a day ago"
        cure = "see that a harvester with 'keep' leads, and may delete from it; its log says what hinders it"
        yield Finding(Level.WARNING, subject, seen, cure)
    elif not found:
        seen = f"{kept} has what was delivered since {before:%Y-%m-%d %H:%M}Z{plan.apart}"
        yield Finding(Level.OK, subject, seen)
