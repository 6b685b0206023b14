"""Keys of an intake that are *held back*: their first row cannot be moved, and later ones wait behind it.

It stays in its table, as others have locked it, or as the outbox refuses it. Other keys go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from outbox_api.portable.intake import UNTOLD, Listed, PortableIntake

LOCKED_SECONDS = 1.0
"""The pause before a locked row is tried again, and between two scans that find nothing to move."""

REFUSED_SECONDS = 60.0
"""The pause before a row is tried again that the outbox has refused."""


@dataclass(slots=True)
class Held:
    """Why the rows of a key wait: its first one."""

    row: Listed
    id: str
    reason: str
    since: float
    due: float
    locked: bool


class HeldKeys:
    """The keys of one table that are held back. Survives connections, as its mover does."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._held: dict[str | None, Held] = {}
        self._tried: dict[str | None, Held] = {}  # held until the last scan, to be tried since
        self._changed: set[str | None] = set()  # keys of rows that have changed since the scan
        self._relisted = False  # whether the last scan has listed keys that were held back

    def __len__(self) -> int:
        return len(self._held) + len(self._tried)

    @property
    def longest(self) -> Held | None:
        """What is held back longest, or is being tried again."""
        return min((*self._held.values(), *self._tried.values()), key=lambda each: each.since, default=None)

    def try_again(self) -> tuple[list[Listed], list[str | None]]:
        """Has those tried again that are due; returns their locked rows, and the keys that a scan omits."""
        self._changed.clear()
        # Those that were tried, and neither moved nor held back again, are gone.
        now = self._clock()
        due = {key: held for key, held in self._held.items() if held.due <= now}
        locked = {key: held.row for key, held in due.items() if held.locked}
        # Other ones may have been corrected, so they are listed anew, with those behind them: these may be
        # so many that there is no room for other keys, which then have the next scan.
        self._relisted = not self._relisted and len(locked) < len(due)
        self._tried = due if self._relisted else {key: due[key] for key in locked}
        self._held = {key: held for key, held in self._held.items() if key not in self._tried}
        return [*locked.values()], [*self._held, *locked]

    def is_behind(self, row: Listed) -> bool:
        """Returns whether a row must wait, as far as its key is known."""
        return row.key in self._changed or (row.key is not UNTOLD and row.key in self._held)

    def free(
        self, intake: PortableIntake, rows: Sequence[Listed]
    ) -> tuple[dict[Any, Mapping[str, object]], list[tuple[Listed, str, str]]]:
        """Locks the rows that nobody has locked, but none behind one of its key that somebody has.

        Returns:
            Place → values of these rows; the first locked one of each key, with its id and a reason.
        """
        found = intake.free([row.place for row in rows])
        if len(found) == len(rows) and intake.tells_keys:
            return {row.place: found[row.place] for row in rows}, []
        missing = [row.place for row in rows if row.place not in found]
        there = intake.there(missing) if missing else {}
        if not intake.tells_keys:
            keys = {place: str(values["kafka_key"]) for place, values in found.items()}
            rows = self._told(rows, keys | {place: key for place, (_, key) in there.items()})
        first = {row.key: row for row in reversed(rows) if row.place not in found}.values()
        self._changed.update(row.key for row in first if row.place not in there)
        locked = [row for row in first if not self.is_behind(row)]
        said = self._said(intake, locked) if locked else ""
        free, passed = dict[Any, Mapping[str, object]](), set[str | None]()
        for row in rows:
            if row.place not in found or self.is_behind(row):
                passed.add(row.key)
            elif row.key not in passed:
                free[row.place] = found[row.place]
        return free, [(row, there[row.place][0], said) for row in locked]

    def _told(self, rows: Sequence[Listed], keys: Mapping[Any, str | None]) -> Sequence[Listed]:
        """Returns the rows before the first that has gone, whose key nobody knows any more, with theirs."""
        present = takewhile(lambda row: row.place in keys, rows)
        told = [row._replace(key=keys[row.place]) for row in present]
        if len(told) < len(rows):
            self._changed.add(UNTOLD)
        return told

    def _said(self, intake: PortableIntake, locked: Sequence[Listed]) -> str:
        since = {held.row.place: held.since for held in self._tried.values()}
        now = self._clock()
        long = [row.place for row in locked if now > since.get(row.place, now) + LOCKED_SECONDS]
        holders = intake.holders(long) if long else ""
        return f"another transaction has locked it{f': {holders}' if holders else ''}; end that"

    def hold_back(self, intake: PortableIntake, row: Listed, reason: str) -> None:
        """Holds a row back that cannot be moved, unless it has gone meanwhile."""
        if row.place is None:
            self.hold(row, "?", reason)
            return
        with intake.session.transaction(f"look at table {intake.table}", reads=True):
            there = intake.there([row.place])
        if row.place not in there:
            self._changed.add(row.key if intake.tells_keys else UNTOLD)
            return
        number, key = there[row.place]
        told = row if intake.tells_keys else row._replace(key=key)
        if not self.is_behind(told):
            self.hold(told, number, reason)

    def hold(self, row: Listed, number: str, reason: str, *, locked: bool = False) -> None:
        """Holds the key of a row back; ``locked`` tells that others have locked it, as it was listed."""
        now, before = self._clock(), self._tried.pop(row.key, None) or self._held.get(row.key)
        since = before.since if before and before.row.place == row.place else now
        due = now + (LOCKED_SECONDS if locked else REFUSED_SECONDS)
        self._held[row.key] = Held(row, number, reason, since, due, locked)

    def let_go(self, rows: Iterable[Listed]) -> None:
        """Notes that rows have been moved."""
        for row in rows:
            self._tried.pop(row.key, None)
