"""How a portable outbox chooses the earliest rows, to mark them or to select them as a batch.

Where rows are bounded by bytes, the SELECT that chooses returns each row's size, and its key, value and
headers only where they are small. Of what the bound lets in, larger rows are read by their ids afterwards; of
one that exceeds the bound alone only topic and key.

Where rows must have an age, they are chosen whatever it is, and end at the first that is not old enough. So
no row overtakes one of its key whose clock was ahead, and no more rows are read than wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from time import time
from typing import Any, NamedTuple

from outbox_api.base.bounds import MAX_KEY_BYTES, MAX_TOPIC_BYTES, too_large, too_long
from outbox_api.base.record import MarkedRecord
from outbox_api.portable.by_ids import SelectByIds
from outbox_api.portable.rows import records
from outbox_api.portable.session import Session
from outbox_api.portable.sources import BEGINNING
from outbox_api.portable.statements import Statements
from outbox_api.seams.fence import Fence
from outbox_api.seams.outbox_table import UNBOUNDED

SMALL = 100
"""Up to so many rows, all tell when they were created."""

SAMPLE = 64
"""Of a larger choice, one of so many rows tells, as each of them would cost."""

FIRST = 64
"""How many rows the first choice of a connection looks at."""

_MIN_CHOSEN = 4
"""How many rows a choice looks at, at least."""

_GROWTH = 4
"""The factor by which a portion grows once all of its rows fit into the bound."""

_SPREAD = 2
"""A row is small if its size is at most this many times its share of the bound."""

Row = Sequence[Any]


class Wanted(NamedTuple):
    """Which rows to choose."""

    limit: int
    max_bytes: int
    conditions: tuple[str, ...]  # beside its lane, its source and that its key is not parked
    values: Mapping[str, object]
    source: int = 0
    dated: bool = False  # whether all rows are to tell when they were created


class Chosen(NamedTuple):
    """Rows that were chosen.

    Attributes:
        rows: The rows, ordered by id; if they are bounded by bytes, the last column is a row's size.
        small: Up to how many bytes a row is whole; 0 if rows are not bounded, and all whole.
        at: When they were asked for, in seconds since the epoch.
    """

    rows: Sequence[Row]
    small: int
    at: float = 0.0

    @property
    def ids(self) -> list[int]:
        """The rows' ids."""
        return [int(row[0]) for row in self.rows]

    def only(self, ids: Iterable[int]) -> Chosen:
        """Returns those of the rows that have one of these ids."""
        kept = set(ids)
        return self._replace(rows=[row for row in self.rows if int(row[0]) in kept])


class Choosing:
    """Chooses rows over one connection, within the caller's transaction."""

    def __init__(self, session: Session, sql: Statements) -> None:
        self._session = session
        self._idiom = session.idiom
        self._sql = sql
        self._portion = FIRST
        self._every: dict[int, int] = {}  # source → of how many rows one tells its age

    def choose(self, fence: Fence, wanted: Wanted) -> Chosen:
        """Chooses the lane's earliest rows, as one statement sees them at one moment.

        The database may have to read a row to know its size, so no more are looked at than are likely to fit.
        Where all of them do, they are chosen anew with more: the order within keys needs one moment.

        How many there are is known once they are read: a choice samples ages if the source's last was large.
        """
        chosen = self._chosen(fence, wanted)
        self._every[wanted.source] = 1 if len(chosen.rows) <= SMALL else SAMPLE
        return chosen

    def _chosen(self, fence: Fence, wanted: Wanted) -> Chosen:
        if not self._has_ripe(wanted.source):
            return Chosen([], 0)
        if wanted.max_bytes >= UNBOUNDED:
            at = time()
            return Chosen(self._fetch(fence, wanted, wanted.limit)[0], 0, at)
        while True:
            at = time()
            portion = min(self._portion, wanted.limit)
            small = max(1, _SPREAD * wanted.max_bytes // portion)
            rows, ended = self._fetch(fence, wanted, portion, small=small)
            fit = fitting((int(row[-1]) for row in rows), wanted.max_bytes)
            if fit < len(rows):
                self._portion = max(_MIN_CHOSEN, fit + fit // 4)
                return Chosen(rows[:fit], small, at)
            if ended:
                return Chosen(rows, small, at)
            if len(rows) == portion:
                self._portion = portion * _GROWTH
            if len(rows) < portion or portion == wanted.limit:
                return Chosen(rows, small, at)

    def read(
        self, chosen: Chosen, max_bytes: int, statements: tuple[SelectByIds, SelectByIds], **values: object
    ) -> list[MarkedRecord]:
        """Makes rows into records, and reads those that were chosen without what is large in them.

        Returns:
            The records, without those of rows that the statements no longer find.
        """
        if not chosen.small:
            return records(chosen.rows, self._idiom, chosen.at)
        sizes = {int(row[0]): int(row[-1]) for row in chosen.rows}
        large = [number for number, size in sizes.items() if chosen.small < size <= max_bytes]
        huge = [number for number, size in sizes.items() if size > max_bytes]
        if not large and not huge:
            read = records([row[:-1] for row in chosen.rows], self._idiom, chosen.at)
            if max(sizes.values(), default=0) <= MAX_TOPIC_BYTES:
                return read
            return [self._checked(each, sizes[each.id], max_bytes) for each in read]
        found = {int(row[0]): row[:-1] for row in chosen.rows if int(row[-1]) <= chosen.small}
        for statement, ids in zip(statements, (large, huge), strict=True):
            found |= {int(row[0]): row for row in self._session.fetch_by_ids(statement, ids, **values)}
        read = records([found[number] for number in sizes if number in found], self._idiom, chosen.at)
        return [self._checked(each, sizes[each.id], max_bytes) for each in read]

    @staticmethod
    def _checked(record: MarkedRecord, size: int, most: int) -> MarkedRecord:
        if size > most:
            return record._replace(fault=too_large(size, most))
        if size <= MAX_TOPIC_BYTES:
            return record
        fault = too_long(len(record.topic.encode()), len(record.key.encode()))
        return record if fault is None else shortened(record, fault)

    def _has_ripe(self, number: int) -> bool:
        """Returns whether rows of a source can be old enough: its first one is, of whatever lane it may be.

        In normal operation it is not, and the look ends here, with one row.
        """
        source = self._sql.source(number)
        if not source.ripe:
            return True
        head = self._session.fetch(self._sql.ripe_head(number), **source.values)
        return bool(head and head[0][0])

    def _fetch(self, fence: Fence, wanted: Wanted, limit: int, **small: int) -> tuple[Sequence[Row], bool]:
        """Fetches rows; returns those that may be taken, and whether they end at one that is too young."""
        source = self._sql.source(wanted.source)
        choose = self._sql.choose(fence.lanes, wanted.conditions, sized=bool(small), number=wanted.source)
        place = {"name": self._sql.name, "lane": fence.lane, "lanes": fence.lanes}
        every = 1 if wanted.dated else self._every.get(wanted.source, 1)
        values = {**place, "every": every, **source.values, **wanted.values, **small}
        rows = self._session.fetch(choose, **values, limit=limit)
        if not source.ripe:
            return rows, False
        ripe = [row[:-1] for row in takewhile(lambda row: row[-1], rows)]
        return ripe, len(ripe) < len(rows)


def shortened(record: MarkedRecord, fault: str) -> MarkedRecord:
    """Returns a record whose topic or key is too long with the beginnings of both, and nothing else."""
    topic, key = record.topic[:BEGINNING], record.key
    if len(key.encode()) > MAX_KEY_BYTES:
        key = key[:BEGINNING]
    return record._replace(topic=topic, key=key, value=None, headers=(), fault=fault)


def fitting(sizes: Iterable[int], most: int) -> int:
    """Returns how many of the first rows have ``most`` bytes together; one with more alone counts nothing."""
    number = total = 0
    for number, size in enumerate(sizes, 1):
        total += size if size <= most else 0
        if total > most:
            return number - 1
    return number
