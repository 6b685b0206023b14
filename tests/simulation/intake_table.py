"""Another table and the outbox, as sessions of simulated leaders reach them, and what is checked of them.

What a session asks for travels to the server and back; the leader's thread, a greenlet, waits for the reply.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from greenlet import getcurrent
from outbox_api import AccessDenied, DriverError
from outbox_api.base.errors import RolledBack
from outbox_api.portable import moving
from outbox_api.portable.intake import UNTOLD, Listed
from outbox_api.portable.session import LockTimeout

from .scheduler import Host
from .trail import Violation

if TYPE_CHECKING:
    from .intake_world import IntakeWorld

LOCK_SECONDS = 5.0
"""How long a statement waits for the fence."""
GLANCE = 0.02
"""Seconds between two looks of a server whether a lock is free."""
WAITS = object()
"""The reply of a statement that has to wait."""
SQL = SimpleNamespace(hold_note="hold", tokens="tokens")


class Gone(BaseException):
    """The process of a thread has been killed; nothing of it may go on."""


@dataclass(slots=True, eq=False)
class Event:
    """A row that an application has written into the other table.

    Attributes:
        number: Its number; those of one transaction rise.
        key: Its key.
        inserted: The number of the step that inserted it.
        committed: The number of the step that committed it; 0 for never.
        since: When that was, in seconds.
        size: Its bytes.
        version: How often it was changed.
        locked: Who has locked it: an application, or a session.
        refused: Whether the outbox refuses it.
        breaks: Whether the connection is lost with which it is moved.
    """

    number: int
    key: str
    inserted: int
    committed: int = 0
    since: float = 0.0
    size: int = 10
    version: int = 0
    locked: Any = None
    refused: bool = False
    breaks: bool = False

    def precedes(self, other: Event) -> bool:
        """Tells whether this row comes causally before another of its key."""
        if self.inserted == other.inserted:
            return self.number < other.number
        return 0 < self.committed < other.inserted


class Tables:
    """The other table, the outbox and its fence; all of it is committed.

    Attributes:
        events: Number → row.
        arrived: The numbers of the rows in the outbox.
        token: The fence's.
        holder: The session that holds the fence.
        denied: Whether a permission is withdrawn.
        primary: The number of the server that is the primary.
        down_until: When the server is back.
        by_commits: Whether rows are put in order by their commits, else by their numbers.
        versions: Whether a changed row has another place.
        tells_keys: Whether a scan tells keys.
    """

    def __init__(self, world: IntakeWorld) -> None:
        self.world = world
        self.events: dict[int, Event] = {}
        self.arrived: set[int] = set()
        self.token = 0
        self.holder: SimulatedSession | None = None
        self.denied = False
        self.primary = 1
        self.down_until = 0.0
        self.sessions: list[SimulatedSession] = []
        chance = world.chance
        self.versions = chance.random() < 0.6
        self.by_commits = self.versions and chance.random() < 0.5
        self.tells_keys = chance.random() < 0.75

    def place(self, row: Event) -> Any:
        return (row.number, row.version) if self.versions else row.number

    def find(self, place: Any) -> Event | None:
        row = self.events.get(place[0] if self.versions else place)
        return row if row and self.place(row) == place else None

    def in_order(self) -> list[Event]:
        return sorted(self.events.values(), key=lambda row: (self.by_commits and row.committed, row.number))

    def commit(self, session: SimulatedSession) -> None:
        """Checks and makes visible what a transaction has done."""
        world, written = self.world, session.written
        if {row.number for row in written} != session.removed or len(written) != len(session.removed):
            raise Violation("once", f"{len(written)} rows written, {len(session.removed)} removed")
        if written and session.token != self.token:
            raise Violation("fence", f"token {session.token} moves rows, the fence has {self.token}")
        if len(written) > moving.PORTION:
            raise Violation("bounded", f"{len(written)} rows in one transaction")
        unchanged = [row.size for row in written if not row.version]
        if len(written) > 1 and sum(unchanged) > moving.PORTION_BYTES:
            raise Violation("bounded", f"{sum(unchanged)} bytes in one transaction")
        for row in written:
            if row.number in self.arrived or self.events.get(row.number) is not row:
                raise Violation("once", f"row {row.number} arrives again", row.key)
            before = [each for each in self.events.values() if each.key == row.key and each.precedes(row)]
            if before:
                raise Violation("order", f"row {row.number} passes row {before[0].number}", row.key)
            del self.events[row.number]
            self.arrived.add(row.number)
            world.counts["moved"] += 1
            world.note(f"{session._host.name} moves {row.number} of {row.key}")
        session.end()


class SimulatedSession:
    """A connection, and the transaction over it. As ``outbox_api.portable.session`` for its users.

    Attributes:
        token: Of the leader that uses it.
        written: What the transaction has written into the outbox.
        removed: Numbers of rows that it has deleted.
    """

    def __init__(self, tables: Tables, host: Host, token: int) -> None:
        self.tables = tables
        self.token = token
        self.written: list[Event] = []
        self.removed: set[int] = set()
        self._host = host
        self._locked: list[Event] = []
        self._broken = False
        self._primary = tables.primary
        ask(host, tables.world, self._connect)

    def _connect(self) -> None:
        if self.tables.world.now < self.tables.down_until:
            raise lost("the server is down")
        self.tables.sessions.append(self)

    # --- what the product calls ---------------------------------------------------------------------

    @contextmanager
    def transaction(self, doing: str, *, reads: bool = False) -> Iterator[None]:
        """Commits what is executed within; rolls back if anything is raised."""
        del doing, reads
        try:
            yield
            self.statement(lambda: self.tables.commit(self), commits=True)
        except BaseException:
            if self._host.alive:
                with suppress(DriverError):
                    self.statement(self.end)
            raise

    def fetch(self, sql: str, **_: object) -> Any:
        """Holds the fence, or reads it."""
        if sql == SQL.hold_note:
            return self.statement(self._hold)
        return self.statement(lambda: [(0, self.tables.token)])

    def execute(self, sql: str, **_: object) -> int:
        """Tries a statement, which changes nothing."""
        del sql
        self.statement(self.require_permission)
        return 0

    def close(self) -> None:
        """Disconnects."""
        self.break_off()

    # --- what the server does -----------------------------------------------------------------------

    def statement(self, do: Callable[[], Any], *, commits: bool = False) -> Any:
        """Has the server do something, unless something comes between."""
        world = self.tables.world
        return ask(self._host, world, self._serve, do, world.fate(commits=commits), world.now)

    def _serve(self, do: Callable[[], Any], fate: str, asked: float) -> Any:
        world = self.tables.world
        if self._broken:
            raise lost("the connection is closed")
        if fate == "before":
            self.break_off()
            raise lost("the request is lost")
        if fate == "cancelled":
            self.end()
            raise RolledBack("the statement is cancelled", retryable=True)
        found = do()
        if found is WAITS:
            if world.now > asked + LOCK_SECONDS:
                self.end()
                raise LockTimeout("the fence is locked", retryable=True)
            return WAITS
        if fate == "after":
            self.break_off()
            raise lost("the reply is lost")
        return found

    @property
    def under_way(self) -> bool:
        """Whether it is in a transaction that changes something."""
        return self.tables.holder is self or bool(self._locked)

    @property
    def outdated(self) -> bool:
        """Whether it is one with a former primary, which is read-only, and from which all has been moved."""
        return self._primary != self.tables.primary

    def _hold(self) -> Any:
        self.require_permission()
        if self.tables.holder not in (None, self):
            return WAITS
        self.tables.holder = self
        return [()]

    def lock(self, row: Event) -> bool:
        """Locks a row unless somebody else has."""
        if row.locked not in (None, self):
            return False
        row.locked = self
        self._locked.append(row)
        return True

    def require_permission(self) -> None:
        if self.outdated:
            raise lost("the server is read-only")
        if self.tables.denied:
            raise AccessDenied("permission denied")

    def end(self) -> None:
        """Ends the transaction, and gives back its locks."""
        for row in self._locked:
            if row.locked is self:
                row.locked = None
        if self.tables.holder is self:
            self.tables.holder = None
        self._locked, self.written, self.removed = [], [], set()

    def break_off(self) -> None:
        """Ends the connection, as the server sees it."""
        self.end()
        self._broken = True
        if self in self.tables.sessions:
            self.tables.sessions.remove(self)

    def on(self, host: Host) -> bool:
        return self._host is host


class SimulatedIntake:
    """The statements of ``outbox_api.portable.PortableIntake``, whose docstrings they have."""

    table = "events"

    def __init__(self, session: SimulatedSession, tables: Tables) -> None:
        self.session = session
        self.tables = tables
        self.tells_keys = tables.tells_keys
        session.statement(lambda: None)

    def scan(self, most: int, without: Collection[str]) -> list[Listed]:
        def look() -> list[Listed]:
            tables, left_out = self.tables, set(without)
            if self.session.outdated:
                return []
            rows = [row for row in tables.in_order() if not (tables.tells_keys and row.key in left_out)]
            return [
                Listed(tables.place(row), row.key if tables.tells_keys else UNTOLD, row.size)
                for row in rows[:most]
            ]

        with self.session.transaction("scan", reads=True):
            return list(self.session.statement(look))

    def free(self, places: Sequence[Any]) -> dict[Any, Mapping[str, object]]:
        return dict(self.session.statement(lambda: list(self._contents(places, self.session.lock))))

    def there(self, places: Sequence[Any]) -> dict[Any, tuple[str, str]]:
        found = self.session.statement(lambda: list(self._contents(places, lambda _: True)))
        return {place: (str(place), str(values["kafka_key"])) for place, values in found}

    def _contents(
        self, places: Sequence[Any], which: Callable[[Event], bool]
    ) -> Iterator[tuple[Any, Mapping[str, object]]]:
        for place in places:
            if (row := self.tables.find(place)) and which(row):
                yield place, {"kafka_key": row.key, "row": row}

    def holders(self, places: Sequence[Any]) -> str:
        return str(self.session.statement(lambda: f"by {len(places)}"))

    def stash(self, rows: Sequence[Mapping[str, Any]]) -> None:
        written = [each["row"] for each in rows]

        def write() -> None:
            self.session.require_permission()
            if any(row.breaks for row in written):
                self.tables.world.disturbed()
                self.session.break_off()
                raise lost("the server has ended the connection")
            if any(row.refused for row in written):
                raise DriverError("value too long", retryable=False)
            self.session.written += written

        self.session.statement(write)

    def remove(self, places: Sequence[Any]) -> None:
        def delete() -> None:
            rows = [row for place in places if (row := self.tables.find(place)) and self.session.lock(row)]
            if len(rows) != len(places):
                raise DriverError("not as many as were read", retryable=False)
            self.session.removed |= {row.number for row in rows}

        self.session.statement(delete)

    def trials(self) -> list[tuple[str, str, Mapping[str, object]]]:
        return [("INSERT", "trial", {})]


def lost(reason: str) -> DriverError:
    """Returns the error of a connection that is lost."""
    return DriverError(reason, retryable=True)


def ask(host: Host, world: IntakeWorld, action: Callable[..., Any], *arguments: Any) -> Any:
    """Has the server do something, and waits for its reply; called on the greenlet of a thread."""
    if not host.alive:
        raise Gone
    thread = getcurrent()

    def serve() -> None:
        try:
            reply = action(*arguments)
        except DriverError as error:
            reply = error
        if reply is WAITS:
            world.scheduler.after(GLANCE, serve)
        else:
            host.after(world.delay(), thread.switch, reply)

    world.scheduler.after(world.delay(), serve)
    reply = thread.parent.switch()
    if isinstance(reply, BaseException):
        raise reply
    return reply
