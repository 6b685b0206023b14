"""An operator's connection to the kept records of one outbox."""
# ruff: noqa: S608 - names come quoted from the idiom, and every value is a parameter

from __future__ import annotations

from collections.abc import Sequence
from time import time
from typing import Any

from outbox_api.portable.keeping import KEY_HASHES, chosen_topics
from outbox_api.portable.rows import record
from outbox_api.portable.session import Session
from outbox_api.portable.sources import COLUMNS, EXTRAS, quoted
from outbox_api.portable.tables import Tables
from outbox_api.seams.kept import Chosen, KeptRecord
from outbox_api.seams.placement import placed_row

_BEHIND = ("position", "delivered_at", "token", "lacks")
"""What is read of a kept record behind the columns of a row, its age and its place."""


class PortableKept:
    """An operator's connection to the kept records of one outbox; used by one thread.

    Every method raises ``DriverError`` if the database refuses or cannot be reached.

    Args:
        session: The connection.
        tables: The tables of the outbox, which itself has its schema as far as it is known.
        binary: Whether values are bytes.
    """

    def __init__(self, session: Session, tables: Tables, *, binary: bool) -> None:
        self._session = session
        self._idiom = session.idiom
        self._tables = tables
        self._binary = binary
        self._table = quoted(session.idiom, tables.kept)

    def find(self, chosen: Chosen, after: int, limit: int) -> list[KeptRecord]:
        """Returns kept records with a higher position than ``after``, ordered by position.

        Args:
            chosen: Which.
            after: The last position that is known already; 0 for none.
            limit: How many at most.
        """
        age = self._idiom.age_seconds("create_time")
        columns = ", ".join((*COLUMNS, f"{age} AS age", *EXTRAS, *_BEHIND))
        where, values = self._where(chosen)
        seen = self._idiom.snapshot_read(self._table)
        select = f"SELECT {columns} FROM {seen} WHERE position > {{after}}{where}"
        query = self._idiom.limit(f"{select} ORDER BY position", "{limit}")
        rows, at = self._session.query("read kept records", query, after=after, limit=limit, **values), time()
        return [self._kept(row, at) for row in rows]

    def close(self) -> None:
        """Disconnects. Idempotent, and never raises."""
        self._session.close()

    def _where(self, chosen: Chosen) -> tuple[str, dict[str, object]]:
        """Makes the conditions, each behind an ``AND``, and their parameters."""
        idiom, conditions, values = self._idiom, list[str](), dict[str, object]()
        if chosen.key is not None:
            key, own = (idiom.comparable(text) for text in ("{key}", "COALESCE(kafka_key, '')"))
            hashed = idiom.lane_of(key).replace("{lanes}", str(KEY_HASHES))
            conditions.append(f"key_hash = {hashed} AND {own} = {key}")
            values["key"] = chosen.key
        if chosen.topics:
            conditions.append(chosen_topics(idiom, chosen.topics))
        for name, moment, compares in (("since", chosen.since, ">="), ("until", chosen.until, "<")):
            if moment is not None:
                conditions.append(f"delivered_at {compares} {{{name}}}")
                values[name] = idiom.time_parameter(moment)
        return "".join(f" AND {condition}" for condition in conditions), values

    def _kept(self, row: Sequence[Any], at: float) -> KeptRecord:
        width = len(COLUMNS)
        age, extras, behind = row[width], row[width + 1 : width + 3], row[width + 3 :]
        made = self._read(row[:width])._replace(created=None if age is None else at - float(age))
        position, delivered, token, lacks = behind
        return KeptRecord(
            position=int(position),
            delivered_at=self._idiom.read_timestamp(delivered),
            token=int(token),
            record=placed_row(made, *extras),
            has_value=not int(lacks) & 1,
            has_headers=not int(lacks) & 2,
        )

    def _read(self, row: Sequence[Any]) -> Any:
        return record(row, self._idiom)
