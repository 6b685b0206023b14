"""Makes the partitions of the days to come, and removes those whose time has come."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from itertools import chain

from outbox_api.base.errors import AccessDenied, DriverError, RolledBack
from outbox_api.base.finding import Finding, Level
from outbox_api.portable.partitions import Divided
from outbox_api.portable.session import AlreadyExists, Session, TableMissing
from outbox_api.seams.kept import Tended

CHANGES = 4
"""How many transactions a call spends on partitions, each of which others may have to wait for."""

DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Plan:
    """What there is to do at a moment.

    Attributes:
        today: The present day, where there are partitions.
        absent: The days that lack a partition and can get one; today is the first that can be among them.
        taken: The days that get none, as their records are elsewhere.
        expired: The days whose partitions are to go.
        parted: Whether there are partitions.
    """

    today: date = date.min
    absent: Sequence[date] = ()
    taken: Sequence[date] = ()
    expired: Sequence[date] = ()
    parted: bool = False

    @property
    def apart(self) -> str:
        """What is said of the days that get none; empty if there are none."""
        return f"; of {', '.join(map(str, self.taken))} in no partition of its own" if self.taken else ""


@dataclass(frozen=True, slots=True)
class Days:
    """The partitions of one table, over a connection that others use, too. All times are the database's.

    Args:
        session: The connection.
        divided: The table.
    """

    session: Session
    divided: Divided

    def now(self) -> datetime:
        """Returns the present time of the database, in UTC."""
        return self.session.ask_time().astimezone(UTC)

    def found(self) -> Collection[date] | None:
        """Returns the days that have a partition; ``None`` if the table is not divided like this."""
        parts = self.session.idiom.partitions
        return parts.days(self.session, self.divided) if parts else None

    def tend(self) -> Tended:
        """Does the work of :meth:`outbox_api.OutboxTable.tend_days`."""
        plan = self.plan()
        faults = tuple(dict.fromkeys(self.change(plan)))
        return Tended(more=len(plan.expired) > CHANGES and not faults, faults=faults)

    def prepare(self) -> None:
        """Makes the partitions of today and the next days, as far as this user may and others permit."""
        parts, plan = self.session.idiom.partitions, self.plan()
        if not parts or not plan.absent:
            return
        with suppress(AccessDenied):  # 'outbox check' says what to grant
            for statements in parts.add(self.session, self.divided, plan.absent):
                with suppress(AlreadyExists, RolledBack):
                    self._execute(statements)

    def plan(self, now: datetime | None = None, keep: timedelta | None = None) -> Plan:
        """Returns what there is to do now.

        Args:
            now: The present time; ``None`` to ask the database.
            keep: How long a day stays after its end; ``None`` for as long as it has rows.
        """
        session, divided, parts = self.session, self.divided, self.session.idiom.partitions
        days = self.found()
        if not parts or days is None:
            return Plan()
        now = now or self.now()
        today = now.date()
        absent = parts.missing(days, [today + number * DAY for number in range(divided.ahead + 1)])
        taken = parts.taken(session, divided, absent)
        absent = [day for day in absent if day not in taken]
        before = today if keep is None else (now - keep).date()
        expired = sorted(day for day in days if day < before)
        if keep is None:
            expired = [day for day in expired if self._is_empty(day)]
        return Plan(today, absent, taken, expired, parted=True)

    def due(self, plan: Plan) -> Sequence[Sequence[str]]:
        """Returns the statements that change partitions, by transaction."""
        parts, divided = self.session.idiom.partitions, self.divided
        if not parts:
            return []
        made = parts.add(self.session, divided, plan.absent) if plan.absent else []
        return [*made, *(parts.drop(divided, day) for day in plan.expired[:CHANGES])]

    def change(self, plan: Plan) -> Iterator[str]:
        """Makes and removes partitions; yields why it cannot, in words that stay the same."""
        parts, divided, session = self.session.idiom.partitions, self.divided, self.session
        if not parts or not (plan.absent or plan.expired):
            return
        if grant := parts.refusal(session, divided):
            seen = f"this user may not make and remove partitions of {divided.table}"
            yield f"{seen}: {grant}; see 'outbox check'"
            return
        if plan.absent and (obstacle := parts.obstacle(session, divided)):
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

    def findings(self, subject: str, plan: Plan) -> Iterator[Finding]:
        """Says what of the partitions this user may not change, and which are missing."""
        parts, divided, session = self.session.idiom.partitions, self.divided, self.session
        if not plan.parted or not parts:
            return
        statements = "; ".join(chain.from_iterable(self.due(plan)))
        if grant := parts.refusal(session, divided):
            regular = f"; due now: {statements}" if statements else ""
            instead = "empty ones stay" if divided.outbox else "rows are deleted instead"
            seen = f"this user may not make and remove the partitions of {divided.table}, so {instead}"
            cure = f"{grant}; or let its owner run 'outbox init' every day, which makes partitions"
            yield Finding(Level.WARNING, subject, seen, f"{cure}{regular}")
        # Those further ahead are made within the hour.
        if soon := [day for day in plan.absent if day <= plan.today + DAY]:
            seen = f"{divided.table} has no partition for {' and '.join(map(str, soon))}"
            obstacle = parts.obstacle(session, divided)
            cure = obstacle or f"run 'outbox init', or let somebody run: {statements}"
            yield Finding(Level.WARNING, subject, seen, cure)

    def _is_empty(self, day: date) -> bool:
        """Returns whether a day seems to have no rows; who drops it looks again."""
        parts = self.session.idiom.partitions
        assert parts  # noqa: S101 - who calls this has partitions
        try:
            return parts.is_empty(self.session, self.divided, day)
        except DriverError as error:
            if error.retryable or isinstance(error, TableMissing):
                return False
            raise

    def _execute(self, statements: Sequence[str]) -> None:
        session, parts = self.session, self.session.idiom.partitions
        assert parts  # noqa: S101 - who calls this has partitions
        try:
            with session.transaction("change partitions"):
                for statement in (parts.brief, *statements):
                    session.execute_ddl(statement)
        finally:
            if parts.usual:
                with session.transaction("wait for locks as before", reads=True):
                    for statement in parts.usual:
                        session.execute_ddl(statement)


def outbox_findings(days: Days) -> Iterator[Finding]:
    """Judges the partitions of an outbox that has any."""
    subject, plan = "partitions", days.plan()
    found = list(days.findings(subject, plan))
    if plan.parted and not found:
        last = plan.today + days.divided.ahead * DAY
        seen = f"{days.divided.table} has one for each day until {last}{plan.apart}"
        found.append(Finding(Level.OK, subject, seen))
    yield from found
