"""Moves rows of other tables into an outbox: which, in which portions, and what becomes of those that cannot.

A *scan* lists the earliest rows that wait, by place, key and size. The list serves many *portions*, each one
transaction, which holds what a bump must hold and finds the caller's token in the fence. What cannot be moved
is held back (see :mod:`.held_keys`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

from outbox_api.base.bounds import too_large
from outbox_api.base.errors import AccessDenied, DriverError, RolledBack
from outbox_api.intake.intakes import IntakeState
from outbox_api.portable import held_keys
from outbox_api.portable.held_keys import HeldKeys
from outbox_api.portable.intake import Listed, PortableIntake
from outbox_api.portable.session import LockTimeout, TableMissing

LISTED = 50_000
"""So many rows one scan lists, at most."""

PORTION = 5_000
"""So many rows are moved in one transaction, at most."""

PORTION_BYTES = 8 * 1024 * 1024
"""So many bytes of rows are moved in one transaction, at most; a larger row is moved alone."""

PORTION_SECONDS = 1.0
"""If a portion took longer, the next one is smaller."""

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
        self._keys = HeldKeys(clock)
        self._under_way: list[Listed] = []  # what was taken off the list, and is not known to be done with
        self._confirmed_at = float("-inf")
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
        now, held = self._clock(), self._keys.longest
        scanning = self._scans_since is not None and now > self._scans_since + _LONG
        reason = (
            self._error or (_SLOW if scanning else "") or (f"row {held.id}: {held.reason}" if held else "")
        )
        stuck = [now - since for since in (self._stuck_since, self._scans_since) if since is not None]
        return IntakeState(
            table=self._table,
            moved=self._moved,
            stuck=max(stuck, default=0.0),
            held=len(self._keys),
            reason=reason,
            held_for=now - held.since if held else 0.0,
        )

    def _scan(self, intake: PortableIntake) -> bool:
        """Lists the rows that wait; returns whether there are any to be tried now."""
        now = self._clock()
        if (
            self._stuck_since
            and not self._moved_since_scan
            and now < self._scanned_at + held_keys.LOCKED_SECONDS
        ):
            return False
        self._scanned_at, self._moved_since_scan, self._scans_since = now, 0, now
        locked, left_out = self._keys.try_again()
        self._list.extend(locked)
        self._list.extend(intake.scan(LISTED, left_out))
        self._scans_since = None
        waits = self._list or left_out
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
            if self._keys.is_behind(row):
                self._list.popleft()
                continue
            fault = self._fault(row, max_bytes)
            if rows and (fault or size + row.size > PORTION_BYTES):
                break
            self._under_way.append(self._list.popleft())
            if fault:
                self._keys.hold_back(intake, row, fault)
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
                moved, locked = self._keys.free(intake, rows)
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
            self._keys.hold(row, number, said, locked=True)
        self._suspect, self._losses = None, 0
        # Who raises the fence waits for a portion.
        slow = self._clock() > began + PORTION_SECONDS
        self._most = max(1, len(rows) // 2) if slow else min(PORTION, 2 * self._most)
        if moved:
            self._refused = 0
            self._moved += len(moved)
            self._moved_since_scan += len(moved)
            self._stuck_since = self._clock()
            self._keys.let_go(row for row in rows if row.place in moved)

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
            self._move(intake, [row for row in rows[middle:] if not self._keys.is_behind(row)], hold)
            return
        what, cure = _KEPT if self._removing else _REFUSED
        self._keys.hold_back(intake, rows[0], f"{what}: {error}; {cure}")
        self._refused += 1
        if self._refused > HOPELESS:
            self._refused = 0
            raise error


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
