"""An operator's connection to the kept records of one outbox."""
# ruff: noqa: S608 - names come quoted from the idiom, and every value is a parameter

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from time import time
from typing import Any

from outbox_api.portable.keeping import SUPERSEDED, chosen_topics, key_hash
from outbox_api.portable.rows import record
from outbox_api.portable.session import Session
from outbox_api.portable.sources import COLUMNS, EXTRAS, quoted
from outbox_api.portable.tables import Tables
from outbox_api.seams.kept import Chosen, Condition, Kept, KeptRecord
from outbox_api.seams.parking import listed
from outbox_api.seams.placement import placed_row

_BEHIND = ("position", "delivered_at", "token", "lacks")
"""What is read of a kept record behind the columns of a row, its age and its place."""

_SHORT = (*COLUMNS[:3], *(f"NULL AS {column}" for column in COLUMNS[3:]))
"""The columns of a row, without value and headers."""


class PortableKept:
    """An operator's connection to the kept records of one outbox; used by one thread.

    Every method raises ``DriverError`` if the database refuses or cannot be reached.

    Args:
        session: The connection.
        tables: The tables of the outbox, which itself has its schema as far as it is known.
    """

    def __init__(self, session: Session, tables: Tables) -> None:
        self._session = session
        self._idiom = session.idiom
        octets = map(session.idiom.byte_length, ("kafka_key", "kafka_value"))
        self._size = " + ".join(f"COALESCE({each}, 0)" for each in octets)
        self._seen = session.idiom.snapshot_read(quoted(session.idiom, tables.kept))
        parts = session.idiom.partitions
        self._window = parts.window if parts else 0

    def now(self) -> datetime:
        """Returns the present time by the database's clock, with a time zone."""
        return self._session.ask_time()

    def find(self, chosen: Chosen, after: int, limit: int, *, whole: bool = True) -> list[KeptRecord]:
        """Returns kept records with a higher position than ``after``, ordered by position.

        Args:
            chosen: Which.
            after: The last position that is known already; 0 for none.
            limit: How many at most.
            whole: Whether to return all of each record, which may be large; if not, values are ``None``,
                headers are left out, and topics and keys are as :func:`listed` says.
        """
        with self._session.transaction("read kept records", reads=True):
            return self.page(chosen, after, limit, whole=whole)

    def page(self, chosen: Chosen, after: int, limit: int, *, whole: bool = True) -> list[KeptRecord]:
        """Does as :meth:`find`, within the caller's transaction of the session."""
        age = self._idiom.age_seconds("create_time")
        columns = ", ".join((*(COLUMNS if whole else _SHORT), f"{age} AS age", *EXTRAS, *_BEHIND))
        rows, at = self._ordered(columns, chosen, after, limit), time()
        found = [self._kept(row, at) for row in rows]
        return found if whole else [replace(each, record=listed(each.record)) for each in found]

    def positions(self, chosen: Chosen, after: int, limit: int) -> list[int]:
        """Returns the positions of what :meth:`page` returns, within the caller's transaction."""
        return [int(row[0]) for row in self._ordered("position", chosen, after, limit)]

    def reach(self, chosen: Chosen, after: int, limit: int, max_bytes: int) -> int:
        """Returns the position up to which :meth:`page` returns so many bytes of keys and values, about.

        Within the caller's transaction. Returns that of one record however large it is, and 0 if there is
        none.
        """
        reached = total = 0
        for position, size in self._ordered(f"position, {self._size}", chosen, after, limit):
            total += int(size)
            if reached and total > max_bytes:
                break
            reached = int(position)
        return reached

    def _ordered(self, columns: str, chosen: Chosen, after: int, limit: int) -> list[Sequence[Any]]:
        """Returns columns of the first records behind a position, in the order of positions."""
        where, values = self._where(chosen)
        select = f"SELECT {columns} FROM {self._seen} WHERE position > {{after}}{where}"
        if not self._window:
            query = self._idiom.limit(f"{select} ORDER BY position", "{limit}")
            return [*self._session.fetch(query, after=after, limit=limit, **values)]
        query = self._idiom.limit(f"{select} AND position <= {{reach}} ORDER BY position", "{limit}")
        reach, last = after, chosen.through
        if last is None or (not after and last > self._window):  # a look at all rows
            first, newest = self.ends()
            reach, last = max(after, first - 1), newest if last is None else min(last, newest)
        rows = list[Sequence[Any]]()
        while reach < last and len(rows) < limit:
            start, reach = reach, min(last, reach + self._window)
            rows += self._session.fetch(query, after=start, reach=reach, limit=limit - len(rows), **values)
        return rows

    def ends(self) -> tuple[int, int]:
        """Returns the least and the greatest position, or 0, within the caller's transaction."""
        ends = f"SELECT COALESCE(MIN(position), 0), COALESCE(MAX(position), 0) FROM {self._seen}"
        [(first, last)] = self._session.fetch(ends)
        return int(first), int(last)

    def last_position(self) -> int:
        """Returns the greatest position, or 0, within the caller's transaction of the session."""
        return self.ends()[1]

    def count(self, chosen: Chosen, after: int = 0) -> Kept:
        """Returns how much is kept of what is chosen, behind a position. May read the whole table."""
        sums = [[str(total) for total in range(2 * SUPERSEDED) if total & part] for part in (1, 2)]
        lacking = (
            f"COALESCE(SUM(CASE WHEN lacks IN ({', '.join(some)}) THEN 1 ELSE 0 END), 0)" for some in sums
        )
        where, values = self._where(chosen)
        query = (
            f"SELECT COUNT(*), COUNT(DISTINCT key_hash), COALESCE(SUM({self._size}), 0),"
            f" {', '.join(lacking)}, COALESCE(MIN(position), 0), COALESCE(MAX(position), 0),"
            " MIN(delivered_at), MAX(delivered_at)"
            f" FROM {self._seen} WHERE position > {{after}}{where}"
        )
        [(*counted, since, until)] = self._session.query("count kept records", query, after=after, **values)
        if since is None:
            return Kept()
        records, keys, octets, without_value, without_headers, first, last = map(int, counted)
        moments = (self._idiom.read_timestamp(each).astimezone(UTC) for each in (since, until))
        return Kept(records, keys, octets, without_value, without_headers, first, last, *moments)

    def days(self) -> Iterator[tuple[date, Kept]]:
        """Returns how much is kept of each day in UTC, ordered; without days of which nothing is kept."""
        earliest = f"SELECT MIN(delivered_at) FROM {self._seen} WHERE delivered_at >= {{since}}"
        since = datetime(1970, 1, 1, tzinfo=UTC)
        while True:
            moment = self._idiom.time_parameter(since)
            [(found,)] = self._session.query("look for kept records", earliest, since=moment)
            if found is None:
                return
            day = self._idiom.read_timestamp(found).astimezone(UTC).date()
            begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
            since = begin + timedelta(days=1)
            yield day, self.count(Chosen(since=begin, until=since))

    @property
    def session(self) -> Session:
        """The connection, for whoever does more in one transaction."""
        return self._session

    def close(self) -> None:
        """Disconnects. Idempotent, and never raises."""
        self._session.close()

    def _where(self, chosen: Chosen) -> tuple[str, dict[str, object]]:
        """Makes the conditions, each behind an ``AND``, and their parameters."""
        idiom, conditions, values = self._idiom, list[str](), dict[str, object]()
        if chosen.key is not None:
            key, own = (idiom.comparable(text) for text in ("{key}", "COALESCE(kafka_key, '')"))
            conditions.append(f"key_hash = {key_hash(idiom, key)} AND {own} = {key}")
            values["key"] = chosen.key
        if chosen.topics:
            conditions.append(chosen_topics(idiom, chosen.topics))
        for name, moment, compares in (("since", chosen.since, ">="), ("until", chosen.until, "<")):
            if moment is not None:
                conditions.append(f"delivered_at {compares} {{{name}}}")
                values[name] = idiom.time_parameter(moment)
        if not chosen.superseded:
            conditions.append(f"lacks < {SUPERSEDED}")
        if chosen.through is not None:
            conditions.append("position <= {through}")
            values["through"] = chosen.through
        for number, condition in enumerate(chosen.where):
            values[f"where{number}"], compared = self._compared(condition, f"{{where{number}}}")
            conditions.append(compared)
        return "".join(f" AND {condition}" for condition in conditions), values

    def _compared(self, condition: Condition, place: str) -> tuple[object, str]:
        """Makes the parameter of a condition, and the condition."""
        column, value = condition.column, condition.value
        compares = "<>" if condition.operator == "!=" else condition.operator
        if isinstance(value, datetime):
            return self._idiom.time_parameter(value), f"{column} {compares} {place}"
        if isinstance(value, int):
            return value, f"{column} {compares} {place}"
        own, wanted = (self._idiom.comparable(text) for text in (f"COALESCE({column}, '')", place))
        return value, f"{own} {compares} {wanted}"

    def _kept(self, row: Sequence[Any], at: float) -> KeptRecord:
        width = len(COLUMNS)
        age, extras, behind = row[width], row[width + 1 : width + 3], row[width + 3 :]
        made = self._read(row[:width])._replace(created=None if age is None else at - float(age))
        position, delivered, token, lacks = behind
        return KeptRecord(
            position=int(position),
            delivered_at=self._idiom.read_timestamp(delivered).astimezone(UTC),
            token=int(token),
            record=placed_row(made, *extras),
            has_value=not int(lacks) & 1,
            has_headers=not int(lacks) & 2,
            superseded=bool(int(lacks) & SUPERSEDED),
        )

    def _read(self, row: Sequence[Any]) -> Any:
        return record(row, self._idiom)
