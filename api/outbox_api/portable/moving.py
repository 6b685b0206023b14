"""Moves rows of other tables into an outbox: which, in which portions, and what becomes of those that cannot.

A *scan* lists the earliest rows that wait, by place, key and size. The list serves many *portions*, each one
transaction, which holds what a bump must hold and finds the caller's token in the fence. A row that others
have locked, or that the outbox refuses, is *held back*: it stays in its table, later rows of its key wait
behind it, and other keys go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

from outbox_api.bounds import too_large
from outbox_api.errors import AccessDenied, DriverError, RolledBack
from outbox_api.intakes import IntakeState
from outbox_api.portable.intake import UNTOLD, Listed, PortableIntake, not_told_apart
from outbox_api.portable.session import LockTimeout, TableMissing

LISTED = 50_000
"""So many rows one scan lists, at most."""

PORTION = 5_000
"""So many rows are moved in one transaction, at most."""

PORTION_BYTES = 8 * 1024 * 1024
"""So many bytes of rows are moved in one transaction, at most; a larger row is moved alone."""

PORTION_SECONDS = 1.0
"""If a portion took longer, the next one is smaller."""

LOCKED_SECONDS = 1.0
"""The pause before a locked row is tried again, and between two scans that find nothing to move."""

REFUSED_SECONDS = 60.0
"""The pause before a row is tried again that the outbox has refused."""

CONFIRM_SECONDS = 5.0
"""If nothing was moved for so long, it is confirmed that something could be: a former primary, which is
read-only and keeps its connections, has no rows that wait."""

_LONG = 10.0
"""Seconds after which a scan is what keeps rows waiting."""

_REFUSED = ("the outbox refuses it", "widen the outbox's column, or correct the row")

_KEPT = ("its table keeps it", "drop the foreign key or the trigger that does, or set intake.done")

_SLOW = "to list its rows in their order takes long; name a column with an index as intake.order"

LOSSES = 3
"""If the connection is lost so often while a row is moved alone, it may be for that row."""

HOPELESS = 100
"""If so many rows in a row are refused, it is no fault of theirs."""


@dataclass(slots=True)
class _Held:
    """Why the rows of a key wait: its first one."""

    row: Listed
    id: str
    reason: str
    since: float
    due: float
    locked: bool


class Mover:
    """Moves the rows of one table. Survives connections; each call gets the present one.

    Args:
        table: The table's name.
        clock: Returns seconds, and never goes back.
    """

    def __init__(self, table: str, clock: Callable[[], float] = monotonic) -> None:
        self._table = table
        self._clock = clock
        self._list: deque[Listed] = deque()
        self._held: dict[str, _Held] = {}
        self._tried: dict[str, _Held] = {}  # held until the last scan, to be tried since
        self._under_way: list[Listed] = []  # what was taken off the list, and is not known to be done with
        self._changed: set[str] = set()  # keys of rows that have changed since the scan
        self._confirmed_at = float("-inf")
        self._relisted = False  # whether the last scan has listed keys that were held back
        self._most = PORTION
        self._suspect: Any = None  # the place of a row that was alone when the connection was lost
        self._losses = 0  # how often it was
        self._removing = False
        self._loss = ""
        self._refused = 0
        self._scanned_at = float("-inf")
        self._moved = self._moved_since_scan = 0
        self._stuck_since: float | None = None
        self._scans_since: float | None = None
        self._error = ""

    def take(self, intake: PortableIntake, hold: Callable[[], None], max_bytes: int) -> bool:
        """Moves a portion; returns whether it makes sense to go on at once.

        Args:
            intake: The table.
            hold: Holds the fence, within a transaction.
            max_bytes: How many bytes a row may have.

        Raises:
            LeadershipLost: The fence is no longer the caller's; nothing was moved.
            DriverError: The database refused, or is gone. After a retryable one, connect anew.
        """
        self._under_way = []
        try:
            if not self._list and not self._scan(intake):
                self._confirm(intake, hold)
                return False
            rows = self._portion(intake, max_bytes)
            if rows:
                self._move(intake, rows, hold)
        except BaseException as error:
            # Some may have been moved or held back; the others must not be passed by later rows.
            self._list.extendleft(reversed(self._under_way))
            if isinstance(error, DriverError):
                self.failed(error)
            raise
        self._error = ""
        return bool(self._list or self._moved_since_scan)

    def failed(self, error: DriverError) -> None:
        """Notes why nothing was moved."""
        self._stuck_since = self._stuck_since or self._clock()
        listing = isinstance(error, RolledBack) and not isinstance(error, LockTimeout)
        listing &= self._scans_since is not None
        self._error = f"{error}; {_SLOW}" if listing else str(error)

    def state(self) -> IntakeState:
        """Returns what is to be said of it."""
        now, every = self._clock(), [*self._held.values(), *self._tried.values()]
        held = min(every, key=lambda each: each.since, default=None)
        scanning = self._scans_since is not None and now > self._scans_since + _LONG
        reason = (
            self._error or (_SLOW if scanning else "") or (f"row {held.id}: {held.reason}" if held else "")
        )
        stuck = [now - since for since in (self._stuck_since, self._scans_since) if since is not None]
        return IntakeState(
            table=self._table,
            moved=self._moved,
            stuck=max(stuck, default=0.0),
            held=len(every),
            reason=reason,
            held_for=now - held.since if held else 0.0,
        )

    def _scan(self, intake: PortableIntake) -> bool:
        """Lists the rows that wait; returns whether there are any to be tried now."""
        now = self._clock()
        if self._stuck_since and not self._moved_since_scan and now < self._scanned_at + LOCKED_SECONDS:
            return False
        self._scanned_at, self._moved_since_scan, self._scans_since = now, 0, now
        self._changed.clear()
        # Those that were tried, and neither moved nor held back again, are gone.
        due = {key: held for key, held in self._held.items() if held.due <= now}
        locked = {key: held.row for key, held in due.items() if held.locked}
        # Other ones may have been corrected, so they are listed anew, with those behind them: these may be
        # so many that there is no room for other keys, which then have the next scan.
        self._relisted = not self._relisted and len(locked) < len(due)
        self._tried = due if self._relisted else {key: due[key] for key in locked}
        self._held = {key: held for key, held in self._held.items() if key not in self._tried}
        self._list.extend(locked.values())
        self._list.extend(intake.scan(LISTED, [*self._held, *locked]))
        self._scans_since = None
        waits = self._list or self._held
        self._stuck_since = (self._stuck_since or now) if waits else None
        return bool(self._list)

    def _confirm(self, intake: PortableIntake, hold: Callable[[], None]) -> None:
        if self._clock() > self._confirmed_at + CONFIRM_SECONDS:
            with intake.session.transaction(f"take in rows of table {self._table}"):
                hold()
            self._confirmed_at = self._clock()

    def _portion(self, intake: PortableIntake, max_bytes: int) -> list[Listed]:
        """Takes the next rows off the list, and holds back those that cannot be read."""
        rows, size = list[Listed](), 0
        while self._list and len(rows) < self._most:
            row = self._list[0]
            if row.key in self._changed or (intake.tells_keys and row.key in self._held):
                self._list.popleft()
                continue
            fault = self._fault(row, max_bytes)
            if rows and (fault or size + row.size > PORTION_BYTES):
                break
            self._under_way.append(self._list.popleft())
            if fault:
                self._hold_back(intake, row, fault)
                continue
            size += row.size
            rows.append(row)
        return rows

    def _fault(self, row: Listed, max_bytes: int) -> str:
        """Returns why a row must not even be read; empty if it may be."""
        if row.place is None:
            return "its id is null"
        if row.size > max_bytes:
            return too_large(row.size, max_bytes)
        if row.place == self._suspect and self._losses >= LOSSES:
            self._suspect, self._losses = None, 0
            return f"the connection is lost whenever it is moved: {self._loss}"
        return ""

    def _move(self, intake: PortableIntake, rows: Sequence[Listed], hold: Callable[[], None]) -> None:
        began = self._clock()
        try:
            with intake.session.transaction(f"take in rows of table {self._table}"):
                hold()
                self._removing = False
                moved, locked = self._free(intake, rows)
                intake.stash([moved[place] for place in moved])
                self._removing = True
                # At the very end: PostgreSQL forgets the order of a transaction's rows once one is deleted.
                intake.remove([*moved])
        except DriverError as error:
            self._handle(error, intake, rows, hold)
            return
        self._confirmed_at = self._clock()
        # Not before rows of their keys that come before them have been moved.
        for row, number, said in locked:
            self._hold(row, number, said, locked=True)
        self._suspect, self._losses = None, 0
        # Who raises the fence waits for a portion.
        slow = self._clock() > began + PORTION_SECONDS
        self._most = max(1, len(rows) // 2) if slow else min(PORTION, 2 * self._most)
        if moved:
            self._refused = 0
            self._moved += len(moved)
            self._moved_since_scan += len(moved)
            self._stuck_since = self._clock()
            for row in rows:
                if row.place in moved:
                    self._tried.pop(row.key, None)

    def _free(
        self, intake: PortableIntake, rows: Sequence[Listed]
    ) -> tuple[dict[Any, Mapping[str, object]], list[tuple[Listed, str, str]]]:
        """Locks the rows that nobody has locked, but none behind one of its key that somebody has.

        Returns:
            Place → values of these rows; the first locked one of each key, with its id and a reason.
        """
        if not rows:
            return {}, []
        read = intake.free([row.place for row in rows])
        found = dict(read)
        if len(found) < len(read):
            raise not_told_apart(self._table, len(read) - len(found))
        if len(found) == len(rows) and intake.tells_keys:
            return {row.place: found[row.place] for row in rows}, []
        rows = self._keyed(intake, rows, found)
        missing = [row for row in rows if row.place not in found]
        there = intake.there([row.place for row in missing])
        if not intake.tells_keys:
            rows = self._before_gone(rows, found.keys() | there.keys())
            missing = [row for row in rows if row.place not in found]
        first = {row.key: row for row in reversed(missing)}.values()
        locked = [row for row in first if row.place in there and not self._is_behind(row)]
        held = {row.key: held for row in locked if (held := self._held_before(row))}
        long = [each.row.place for each in held.values() if self._clock() > each.since + LOCKED_SECONDS]
        holders = intake.holders(long) if long else ""
        said = f"another transaction has locked it{f': {holders}' if holders else ''}; end that"
        self._changed.update(row.key for row in first if row.place not in there)
        free, passed = dict[Any, Mapping[str, object]](), {row.key for row in rows if self._is_behind(row)}
        for row in rows:
            if row.place not in found:
                passed.add(row.key)
            elif row.key not in passed:
                free[row.place] = found[row.place]
        return free, [(row, there[row.place], said) for row in locked]

    @staticmethod
    def _keyed(
        intake: PortableIntake, rows: Sequence[Listed], found: Mapping[Any, Mapping[str, object]]
    ) -> Sequence[Listed]:
        """Returns the rows with their keys, where a scan does not tell them."""
        if intake.tells_keys:
            return rows
        others = intake.keys([row.place for row in rows if row.place not in found])
        keys = {place: str(values["kafka_key"]) for place, values in found.items()} | others
        return [row._replace(key=keys.get(row.place, UNTOLD)) for row in rows]

    def _before_gone(self, rows: Sequence[Listed], present: Collection[Any]) -> Sequence[Listed]:
        """Returns the rows before the first that has gone, whose key nobody knows any more."""
        for number, row in enumerate(rows):
            if row.place not in present:
                self._changed.add(UNTOLD)
                return rows[:number]
        return rows

    def _is_behind(self, row: Listed) -> bool:
        return row.key in self._changed or row.key in self._held

    def _handle(
        self, error: DriverError, intake: PortableIntake, rows: Sequence[Listed], hold: Callable[[], None]
    ) -> None:
        """Finds the rows that the outbox refuses; raises what is no fault of theirs."""
        lone = len(rows) == 1
        if error.retryable or isinstance(error, AccessDenied | TableMissing) or not _sound(intake):
            if lone and error.retryable and not isinstance(error, RolledBack):
                self._losses = self._losses + 1 if self._suspect == rows[0].place else 1
                self._suspect, self._loss = rows[0].place, str(error)
            self._most = max(1, len(rows) // 2)
            raise error
        if not lone:
            middle = len(rows) // 2
            self._move(intake, rows[:middle], hold)
            passed = self._held.keys() | self._changed
            self._move(intake, [row for row in rows[middle:] if row.key not in passed], hold)
            return
        what, cure = _KEPT if self._removing else _REFUSED
        self._hold_back(intake, rows[0], f"{what}: {error}; {cure}")
        self._refused += 1
        if self._refused > HOPELESS:
            self._refused = 0
            raise error

    def _hold_back(self, intake: PortableIntake, row: Listed, reason: str) -> None:
        if row.place is None:
            self._hold(row, "?", reason)
            return
        with intake.session.transaction(f"look at table {self._table}", reads=True):
            [row] = self._keyed(intake, [row], {})
            there = intake.there([row.place])  # what is still there then has a key that is known
        if row.place not in there:
            self._changed.add(row.key)
        elif not self._is_behind(row):
            self._hold(row, there[row.place], reason)

    def _held_before(self, row: Listed) -> _Held | None:
        held = self._tried.get(row.key) or self._held.get(row.key)
        return held if held and held.row.place == row.place else None

    def _hold(self, row: Listed, number: str, reason: str, *, locked: bool = False) -> None:
        now, before = self._clock(), self._tried.pop(row.key, None) or self._held.get(row.key)
        since = before.since if before and before.row.place == row.place else now
        due = now + (LOCKED_SECONDS if locked else REFUSED_SECONDS)
        self._held[row.key] = _Held(row, number, reason, since, due, locked)


class _Undone(Exception):  # noqa: N818 - ends a transaction, and is no error
    """Rolls a transaction back."""


def _sound(intake: PortableIntake) -> bool:
    """Returns whether the statements themselves are accepted, so that it must be the rows that are not."""
    session = intake.session
    for right, statement, values in intake.trials():
        try:
            with suppress(_Undone), session.transaction(f"try {right}"):
                session.execute(statement, **values)
                raise _Undone  # some databases fire triggers for no rows, too
        except DriverError:
            return False
    return True
