"""Removes what was kept for long enough, and makes the partitions of the days to come."""
# ruff: noqa: S608 - names come quoted from the idiom, and every value is a parameter

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from itertools import chain

from outbox_api.base.errors import AccessDenied, DriverError, RolledBack
from outbox_api.base.finding import Finding, Level
from outbox_api.portable.keeping import Keep, holds_bytes, of_positions
from outbox_api.portable.session import AlreadyExists, Session, TableMissing
from outbox_api.portable.sources import quoted
from outbox_api.portable.tables import NEEDS, Tables
from outbox_api.seams.kept import Tended

AHEAD = 7
"""For how many days after today partitions are made."""

CHANGES = 4
"""How many transactions a call spends on partitions, each of which purges may have to wait for."""

DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Plan:
    """What there is to do at a moment.

    Attributes:
        before: What was delivered before then is to go.
        today: The present day.
        absent: The days that lack a partition and can get one; today is the first that can be among them.
        taken: The days that get none, as their records are elsewhere; these are deleted one by one.
        expired: The days whose partitions are to go.
        parted: Whether there are partitions.
    """

    before: datetime
    today: date
    absent: Sequence[date] = ()
    taken: Sequence[date] = ()
    expired: Sequence[date] = ()
    parted: bool = False


@dataclass(slots=True)
class Retention:
    """Tends the kept records of one outbox, over a connection that others use, too.

    All times are the database's. Where there are partitions, records go once their whole day, in UTC, is
    older than ``keep.for``: up to a day later than elsewhere.

    Args:
        session: The connection.
        tables: The tables of the outbox.
        keep: How long records are kept.
    """

    session: Session
    tables: Tables
    keep: Keep
    _table: str = field(init=False)

    def __post_init__(self) -> None:
        self._table = quoted(self.session.idiom, self.tables.kept)

    def tend(self, limit: int) -> Tended:
        """Does the work of :meth:`outbox_api.OutboxTable.tend_kept`."""
        plan = self.plan()
        faults = dict.fromkeys(self._change_partitions(plan))
        waiting = max(0, len(plan.expired) - CHANGES)
        # What the next calls drop is not deleted row by row.
        deleted = 0 if waiting and not faults else self._delete(plan.before, limit)
        if overdue := self.remains(plan.before - DAY):
            days = self.keep.for_ / DAY.total_seconds()
            faults[f"records are kept that were to go more than a day ago (keep.for is {days:g} days)"] = None
        return Tended(deleted, more=bool(waiting) or deleted >= limit, faults=tuple(faults), overdue=overdue)

    def prepare(self) -> None:
        """Makes the partitions of today and the next days, as far as this user may and others permit."""
        parts, kept, plan = self.session.idiom.partitions, self.tables.kept, self.plan()
        if not parts or not plan.absent or parts.refusal(self.session, kept):
            return
        for statements in parts.add(kept, plan.absent):
            with suppress(AlreadyExists, RolledBack):
                self._execute(statements)

    def plan(self) -> Plan:
        """Returns what there is to do now."""
        session, kept, now = self.session, self.tables.kept, self.now()
        before = now - timedelta(seconds=self.keep.for_)
        parts = session.idiom.partitions
        days = parts.days(session, kept) if parts else None
        if not parts or days is None:
            return Plan(before, now.date())
        midnight = before.replace(hour=0, minute=0, second=0, microsecond=0)
        wanted = [now.date() + number * DAY for number in range(AHEAD + 1)]
        expired = sorted(day for day in days if day < midnight.date())
        absent = parts.missing(days, wanted)
        taken = parts.taken(session, kept, absent)
        absent = [day for day in absent if day not in taken]
        return Plan(midnight, now.date(), absent, taken, expired, parted=True)

    def now(self) -> datetime:
        """Returns the present time of the database, in UTC."""
        return self.session.ask_time().astimezone(UTC)

    def due(self, plan: Plan) -> Sequence[Sequence[str]]:
        """Returns the statements that change partitions, by transaction."""
        parts, kept = self.session.idiom.partitions, self.tables.kept
        if not parts:
            return []
        made = parts.add(kept, plan.absent) if plan.absent else []
        return [*made, *(parts.drop(kept, day) for day in plan.expired[:CHANGES])]

    def remains(self, before: datetime) -> bool:
        """Returns whether records are kept that were delivered before a time."""
        return bool(self._positions(before, 1))

    def _change_partitions(self, plan: Plan) -> Iterator[str]:
        """Makes and removes partitions; yields why it cannot, in words that stay the same."""
        parts, kept, session = self.session.idiom.partitions, self.tables.kept, self.session
        if not parts or not (plan.absent or plan.expired):
            return
        if grant := parts.refusal(session, kept):
            yield f"this user may not make and remove partitions of {kept}: {grant}; see 'outbox check'"
            return
        if plan.absent and (obstacle := parts.obstacle(session, kept)):
            yield obstacle
            plan = replace(plan, absent=())
        for statements in self.due(plan):
            try:
                self._execute(statements)
            except (AlreadyExists, TableMissing):
                continue  # another process was first
            except RolledBack:
                return  # somebody uses the table; the next call tries again
            except AccessDenied as error:
                yield str(error)
                return
            except DriverError as error:
                if error.retryable:
                    raise
                yield str(error)

    def _execute(self, statements: Sequence[str]) -> None:
        session, parts = self.session, self.session.idiom.partitions
        assert parts  # noqa: S101 - who calls this has partitions
        try:
            with session.transaction("change the partitions of kept records"):
                for statement in (parts.brief, *statements):
                    session.execute_ddl(statement)
        finally:
            if parts.usual:
                with session.transaction("wait for locks as before", reads=True):
                    session.execute_ddl(parts.usual)

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
    subject, kept, parts = NEEDS["kept"].subject, tables.kept, session.idiom.partitions
    retention = Retention(session, tables, keep)
    plan = retention.plan()
    well = True
    values = [holds_bytes(session, session.idiom, table) for table in (tables.outbox, kept)]
    if None not in values and len(set(values)) > 1:
        well = False
        outboxs, own = ("bytes" if each else "texts" for each in values)
        seen = f"kafka_value of {kept} holds {own}, and that of the outbox {outboxs}"
        cure = "while no harvester runs, give it the type of the outbox's, or drop it and run 'outbox init'"
        yield Finding(Level.ERROR, subject, seen, cure)
    if plan.parted and parts:
        statements = "; ".join(chain.from_iterable(retention.due(plan)))
        if grant := parts.refusal(session, kept):
            well = False
            regular = f"; due now: {statements}" if statements else ""
            seen = f"this user may not make and remove the partitions of {kept}, so rows are deleted instead"
            cure = f"{grant}; or let its owner run 'outbox init' every day, which makes partitions"
            yield Finding(Level.WARNING, subject, seen, f"{cure}{regular}")
        # Those further ahead are made within the hour.
        if soon := [day for day in plan.absent if day <= plan.today + DAY]:
            well = False
            seen = f"{kept} has no partition for {' and '.join(map(str, soon))}"
            obstacle = parts.obstacle(session, kept)
            cure = obstacle or f"run 'outbox init', or let somebody run: {statements}"
            yield Finding(Level.WARNING, subject, seen, cure)
    if retention.remains(plan.before - DAY):
        seen = f"{kept} has records that were to go more than a day ago"
        cure = "see that a harvester with 'keep' leads, and may delete from it; its log says what hinders it"
        yield Finding(Level.WARNING, subject, seen, cure)
    elif well:
        apart = f"; of {', '.join(map(str, plan.taken))} in no partition of its own" if plan.taken else ""
        seen = f"{kept} has what was delivered since {plan.before:%Y-%m-%d %H:%M}Z{apart}"
        yield Finding(Level.OK, subject, seen)
