"""An election by a lease in the database, whose clock may step: the real lease, over one simulated row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from outbox_api.portable import PortableOptions, Session
from outbox_api.portable.lease import LeaseStatements, PortableLease
from outbox_api.portable.statements import Statements
from outbox_sqlite.idiom import SqliteIdiom

from .election import SESSION_SECONDS, Coordinator, GroupMember

if TYPE_CHECKING:
    from .process import Process
    from .world import World

_SQL = Statements(SqliteIdiom(), PortableOptions().tables)
_STATEMENTS = LeaseStatements(_SQL)


class Leases(Coordinator):
    """The row that says who leads; see ``outbox_api.portable.lease``.

    For a moment it names two leaders if the clock goes forward. It does not lie.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.session = _Session(world)
        self._members = 0

    def join(self, process: Process) -> LeaseMember:
        self._members += 1
        return LeaseMember(self, process, f"{process.host.name}, member {self._members}")


class LeaseMember(GroupMember):
    """A candidate, with the real lease and the real state of leadership."""

    def __init__(self, leases: Leases, process: Process, holder: str) -> None:
        super().__init__(leases, process)
        world = leases.world
        watch = world.parts.lease_watch(process.host.clock)
        self.table = PortableLease(cast(Session, leases.session), _SQL, watch)
        self.holder = holder
        self._database = world.database
        self._number: int | None = None

    def asked(self, sent_at: float) -> None:
        """Has the database answer a request for the lease."""
        if self._database.down:
            return
        number = self.table.take(self.holder, SESSION_SECONDS)
        delay = self._coordinator.world.chance.random() * 0.01
        self.host.after(delay, self._told, number, sent_at)

    def _ask(self, now: float) -> None:
        world = self._coordinator.world
        world.scheduler.after(world.chance.random() * 0.01, self.asked, now)

    def _told(self, number: int | None, sent_at: float) -> None:
        if self._handing_over or self._gone:
            return
        former, self._number = self._number, number
        if former != number:  # in between somebody else may have had it
            self._handle_answer(self._leadership.lost(self.host.clock()))
        self.answered(number is not None, self._leadership.assignment, sent_at)
        if number != former and number is not None:
            self.answered(True, self._leadership.assignment, sent_at)

    def _give_back(self) -> None:
        if not self._database.down:
            self.table.release(self.holder)


class _Session:
    """Carries out the statements of the real lease on one row."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._row: dict[str, Any] = {}

    @contextmanager
    def transaction(self, what: str, *, reads: bool = False) -> Iterator[None]:
        """Begins one, and ends it; nothing comes in between."""
        yield

    def fetch(self, sql: str, **_: object) -> Sequence[Sequence[object]]:
        """Reads the row."""
        row = self._row
        return (
            [(row["holder"], self._now - row["since"], row["length"], row["term"], row["since"])]
            if row
            else []
        )

    def execute(self, sql: str, **values: Any) -> int:
        """Writes the row; returns whether it did."""
        row, since = self._row, {"since": self._now}
        if sql == _STATEMENTS.make:
            row.update(since, holder=values["holder"], length=values["length"], term=0)
        elif sql == _STATEMENTS.take:
            row.update(since, holder=values["holder"], length=values["length"], term=values["term"])
        elif row.get("holder") != values["holder"]:
            return 0
        elif sql == _STATEMENTS.renew:
            row.update(since, length=values["length"])
        else:
            row["holder"] = None
        return 1

    @property
    def _now(self) -> float:
        return self._world.scheduler.now + self._world.lease_clock
