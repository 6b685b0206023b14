"""What waits in a portable outbox: topics and keys among its first rows, and the rows of one key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from outbox_api.portable.rows import record
from outbox_api.portable.session import Session
from outbox_api.portable.statements import Statements
from outbox_api.seams.outbox_view import MAX_COUNTED, WaitingGroup, WaitingKey, WaitingRow
from outbox_api.seams.parking import listed, listed_key


@dataclass(frozen=True, slots=True)
class Waits:
    """Looks at what waits, in transactions of its own; see :class:`outbox_api.portable.view.PortableView`."""

    _session: Session
    _sql: Statements

    def by_topic(self) -> Mapping[str, int]:
        """Returns how many of the first rows each topic has."""
        with self._session.transaction("count rows by topic", reads=True):
            return {each.topic: each.rows for each in self._groups(self._sql.by_topic, MAX_COUNTED)}

    def groups(self, most: int) -> tuple[list[WaitingGroup], list[WaitingGroup]]:
        """Returns what the first rows are, see ``PortableView.waiting_groups``."""
        with self._session.transaction("count rows by key", reads=True):
            by_topic = self._groups(self._sql.by_topic, most)
            by_key = self._groups(self._sql.by_key, most)
        return [replace(each, key=None) for each in by_topic], by_key

    def of_key(self, most: int, key: str | None, of: int) -> WaitingKey:
        """Returns the rows of a key, see ``PortableView.waiting_key``."""
        session = self._session
        with session.transaction("look at the rows of a key", reads=True):
            wanted: dict[str, object] = {"row_id": of} if key is None else {"key": key}
            if key is None:
                found = session.fetch_by_ids(self._sql.keys, [of])
                if not found:
                    return WaitingKey(None)
                key = record((of, None, found[0][1], None, None, None), session.idiom).key
            read, counts = self._sql.rows_of_key(named="key" in wanted)
            rows = session.fetch(read, limit=most, **wanted)
            count = session.fetch(counts, **wanted)[0][0] if len(rows) == most else len(rows)
        text = session.idiom.read_text
        first = [
            WaitingRow(int(number), listed_key(text(topic) or ""), _seconds(age), int(size), bool(marked))
            for number, topic, age, size, marked in rows
        ]
        return WaitingKey(key, int(count), first)

    def _groups(self, statement: str, most: int) -> list[WaitingGroup]:
        """Returns groups, within the caller's transaction, but for those whose first row is gone by now."""
        rows = self._session.fetch(statement, limit=MAX_COUNTED, most=most)
        found = self._session.fetch_by_ids(self._sql.named, [int(row[0]) for row in rows])
        names = {int(row[0]): listed(record(row, self._session.idiom)) for row in found}
        return [
            WaitingGroup(name.topic, name.key, int(first), int(count), int(marked), _seconds(oldest))
            for first, count, marked, oldest in rows
            if (name := names.get(int(first))) is not None
        ]


def _seconds(age: Any) -> float | None:
    return None if age is None else max(0.0, float(age))
