"""How a portable outbox marks: rows are chosen with their sizes, claimed, then read where they are large.

Of a mark that is bounded by bytes, the SELECT that chooses returns each row's size, and its key, value and
headers only where they are small. What the bound lets in is claimed; larger rows among that are read by their
ids; of one that exceeds the bound alone only topic and key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf
from time import monotonic
from typing import Any, NamedTuple
from uuid import UUID

from outbox_sdk.fence import Fence
from outbox_sdk.outbox_table import UNBOUNDED
from outbox_sdk.portable.rows import records
from outbox_sdk.portable.session import Session
from outbox_sdk.portable.statements import Statements
from outbox_sdk.record import MarkedRecord

FIRST = 64
"""How many rows the first mark of a connection selects."""

_MIN_SELECTED = 4
"""How many rows a mark selects at least."""

_GROWTH = 4
"""The factor by which a portion grows once all of its rows fit into the bound."""

_SPREAD = 2
"""A row is small if its size is at most this many times its share of the bound."""

_LOCK_CHECK_SECONDS = 60.0
"""For how long a connection looks for locked rows before each mark, after it has waited for one in vain."""

_Row = Sequence[Any]


class Wanted(NamedTuple):
    """The parameters of a mark.

    Attributes:
        limit: How many rows at most.
        max_bytes: How many bytes they may have together.
        left_out: Leader ids of which no row is marked.
        excluded: Keys of which no row is marked.
    """

    limit: int
    max_bytes: int
    left_out: Sequence[UUID]
    excluded: Collection[str] = ()


class Marking:
    """Marks over one connection, within the caller's transaction, which holds the fence.

    Args:
        session: The connection.
        sql: The statements of the outbox.
        name: The outbox's name in its fence.
    """

    def __init__(self, session: Session, sql: Statements, name: str) -> None:
        self._session = session
        self._idiom = session.idiom
        self._sql = sql
        self._name = name
        self._portion = FIRST
        self._check_locks_until = -inf

    def mark(self, fence: Fence, leader_id: UUID, wanted: Wanted) -> list[MarkedRecord]:
        """Chooses and claims rows; leaves out those that somebody has deleted meanwhile."""
        leader = self._idiom.uuid_parameter(leader_id)
        while True:
            if wanted.max_bytes >= UNBOUNDED:
                rows, small = self._choose(fence, wanted, wanted.limit), 0
            else:
                rows, small = self._within(fence, wanted)
            if not (held := self._held(rows)):
                break
            wanted = wanted._replace(excluded={*wanted.excluded, *held})
        if not small:
            return records(self._claimed(rows, leader), self._idiom)
        return self._read(self._claimed(rows, leader), leader, small, wanted.max_bytes)

    def avoid_locked(self) -> bool:
        """Makes marks leave out the keys of locked rows for a while; returns whether the database can."""
        self._check_locks_until = monotonic() + _LOCK_CHECK_SECONDS
        return bool(self._sql.free)

    def _held(self, rows: Sequence[_Row]) -> set[str]:
        """Returns the keys of rows that others hold; none while nobody has waited for such a row in vain."""
        if not self._sql.free or not rows or monotonic() > self._check_locks_until:
            return set()
        ids = [int(row[0]) for row in rows]
        free = {int(row[0]) for row in self._session.fetch_by_ids(self._sql.free, ids)}
        held = [number for number in ids if number not in free]
        found = self._session.fetch_by_ids(self._sql.keys, held)
        return {self._idiom.read_text(key) or "" for _, key in found}

    def _within(self, fence: Fence, wanted: Wanted) -> tuple[Sequence[_Row], int]:
        """Chooses the rows that the bound lets in; returns them, and up to which size they are whole.

        The database may have to read a row to know its size, so no more are looked at than are likely to fit.
        Where all of them do, they are chosen anew with more: one statement sees all of them at one moment, as
        the order within keys needs it.
        """
        while True:
            portion = min(self._portion, wanted.limit)
            small = max(1, _SPREAD * wanted.max_bytes // portion)
            rows = self._choose(fence, wanted, portion, small=small)
            fit = fitting((int(row[-1]) for row in rows), wanted.max_bytes)
            if fit < len(rows):
                self._portion = max(_MIN_SELECTED, fit + fit // 4)
                return rows[:fit], small
            if len(rows) == portion:
                self._portion = portion * _GROWTH
            if len(rows) < portion or portion == wanted.limit:
                return rows, small

    def _choose(self, fence: Fence, wanted: Wanted, limit: int, **small: int) -> Sequence[_Row]:
        left = {
            f"left{number}": self._idiom.uuid_parameter(each) for number, each in enumerate(wanted.left_out)
        }
        without, excluded = self._sql.without(wanted.excluded)
        choose = self._sql.choose(fence.lanes, len(left), without, sized=bool(small))
        place = {"name": self._name, "lane": fence.lane, "lanes": fence.lanes}
        values: Mapping[str, object] = {**place, **self._sql.values, **left, **excluded, **small}
        return self._session.fetch(choose, **values, limit=limit)

    def _claimed(self, rows: Sequence[_Row], leader: object) -> Sequence[_Row]:
        ids = [int(row[0]) for row in rows]
        if self._session.execute_by_ids(self._sql.claim, ids, leader=leader) == len(ids):
            return rows
        carried = {int(row[0]) for row in self._session.fetch_by_ids(self._sql.carried, ids, leader=leader)}
        return [row for row in rows if int(row[0]) in carried]

    def _read(self, rows: Sequence[_Row], leader: object, small: int, most: int) -> list[MarkedRecord]:
        """Makes rows into records, and reads those that were chosen without what is large in them."""
        sizes = {int(row[0]): int(row[-1]) for row in rows}
        large = [number for number, size in sizes.items() if small < size <= most]
        huge = [number for number, size in sizes.items() if size > most]
        found = {int(row[0]): row[:-1] for row in rows if int(row[-1]) <= small}
        for statement, ids in ((self._sql.carried_rows, large), (self._sql.carried_heads, huge)):
            found |= {int(row[0]): row for row in self._session.fetch_by_ids(statement, ids, leader=leader)}
        marked = records([found[number] for number in sizes if number in found], self._idiom)
        if not huge:
            return marked
        return [
            each._replace(fault=too_large(sizes[each.id], most)) if sizes[each.id] > most else each
            for each in marked
        ]


def fitting(sizes: Iterable[int], most: int) -> int:
    """Returns how many of the first rows have ``most`` bytes together; one with more alone counts nothing."""
    number = total = 0
    for number, size in enumerate(sizes, 1):
        total += size if size <= most else 0
        if total > most:
            return number - 1
    return number


def too_large(size: int, limit: int | None = None) -> str:
    """Returns why a row of ``size`` bytes is not read; ``limit`` is how much a mark may read, if known."""
    permitted = f" ({limit:,})" if limit else ""
    cure = "raise it, or skip the row"
    return f"the row has {size:,} bytes, more than limits.maxLaneBytes permits{permitted}; {cure}"
