"""Erases what is left of a key: kept records, skipped dead letters, and quotes in the journal."""
# ruff: noqa: S608 - names come quoted from the idiom, and every value is a parameter

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import NamedTuple

from outbox_api.base.record import Record
from outbox_api.portable.keeping import of_positions
from outbox_api.portable.kept import PortableKept
from outbox_api.portable.rows import fitting
from outbox_api.portable.session import Session
from outbox_api.portable.sources import COLUMNS, JOURNAL_TEXTS, quoted
from outbox_api.portable.statements import Statements
from outbox_api.portable.tables import Tables
from outbox_api.seams.kept import Chosen
from outbox_api.seams.parking import DeadLetterStatus

_QUOTING = ("subject", "reason", "outcome")
"""The texts of a journal that may quote a key."""

_ENTRIES = 500
"""How many entries of the journal are read at once."""


class Live(NamedTuple):
    """What is to be delivered of a key.

    Attributes:
        waiting: How many rows the outbox has of it; the head of a parked key is one of them.
        parked: How many dead letters of it are parked.
    """

    waiting: int
    parked: int


class PortableErasing:
    """An operator's connection to all that is left of a key; used by one thread.

    Every step is one transaction, durable when it returns, and may be called while harvesters run. What was
    erased is gone for good. Every method raises ``DriverError`` if the database refuses or cannot be reached.

    Args:
        session: The connection.
        tables: The tables of the outbox, which itself has its schema as far as it is known.
    """

    def __init__(self, session: Session, tables: Tables) -> None:
        self._session = session
        self._idiom = idiom = session.idiom
        self._name = tables.name
        self._tables = tables
        self._sql = Statements(idiom, tables)
        self._kept, self._journal = (quoted(idiom, each) for each in (tables.kept, tables.journal))
        self._has_kept = session.columns(idiom.quote_table(tables.kept)) is not None

    def now(self) -> datetime:
        """Returns the present time by the database's clock."""
        return self._session.ask_time()

    def live(self, key: str) -> Live:
        """Returns what is to be delivered of a key, if this user may erase. May read the whole outbox."""
        self._try_rights()
        with self._session.transaction("look what waits of a key", reads=True):
            waiting = int(self._session.fetch(self._sql.waiting, key=key)[0][0])
        return Live(waiting, len(self._letters(key, DeadLetterStatus.PARKED, 1000)))

    def erase_kept(self, key: str, limit: int) -> Iterator[int]:
        """Deletes the kept records of a key, ``limit`` in a transaction; yields how many each has deleted."""
        if not self._has_kept:
            return
        archive = PortableKept(self._session, self._tables)
        change = of_positions(self._idiom, self._kept)
        with self._session.transaction("look at the kept records", reads=True):
            first, newest = archive.ends()
        chosen, last = Chosen(key=key, through=newest), first - 1
        while True:
            with self._session.transaction("erase kept records"):
                found = archive.positions(chosen, last, limit)
                done = self._session.execute_by_ids(change, found)
            if not found:
                return
            yield done
            last = found[-1]

    def erase_skipped(self, key: str, limit: int) -> int:
        """Deletes skipped dead letters of a key, ``limit`` at most; returns how many."""
        skipped = DeadLetterStatus.SKIPPED
        found = self._letters(key, skipped, limit)
        with self._session.transaction("erase dead letters"):
            drop = self._sql.drop_letters
            return self._session.execute_by_ids(drop, found, name=self._name, status=skipped.value)

    def erase_quotes(self, erased: Callable[[str], str]) -> Iterator[int]:
        """Has the journal's texts without a key; yields how many entries of some changed.

        Args:
            erased: Returns a text without what is to be erased.
        """
        columns = ", ".join(_QUOTING)
        query = self._idiom.limit(
            f"SELECT id, ended, {columns} FROM {self._journal} WHERE name = {{name}} AND id > {{after}}"
            " ORDER BY id",
            "{limit}",
        )
        assigned = ", ".join(f"{column} = {{{column}}}" for column in _QUOTING)
        change = f"UPDATE {self._journal} SET {assigned} WHERE name = {{name}} AND id = {{id}}"
        read, after = self._idiom.read_text, " "  # a text that is before all ids, and not empty
        while True:
            rows = self._session.query(
                "read the journal", query, name=self._name, after=after, limit=_ENTRIES
            )
            if not rows:
                return
            changed = 0
            with self._session.transaction("erase quotes in the journal"):
                for number, ended, *texts in rows:
                    former = {column: read(text) or "" for column, text in zip(_QUOTING, texts, strict=True)}
                    new = {column: erased(text) for column, text in former.items()}
                    if ended is None:  # the state of a replay, which has no key
                        new["outcome"] = former["outcome"]
                    if new != former:
                        fitted = {column: self._fitting(column, text) for column, text in new.items()}
                        changed += self._session.execute(change, name=self._name, id=number, **fitted)
            yield changed
            after = str(rows[-1][0])

    def stash(self, record: Record) -> None:
        """Writes a record without headers into the outbox, as an application would."""
        values = (record.topic, record.key, self._idiom.value_parameter(record.value))
        headers = self._idiom.header_parameter([])
        columns = dict(zip(COLUMNS[1:], (*values, headers, headers), strict=True))
        with self._session.transaction("stash a record"):
            self._session.execute(self._sql.stash, **columns)

    def close(self) -> None:
        """Disconnects. Idempotent, and never raises."""
        self._session.close()

    def _try_rights(self) -> None:
        """Sends what erasing needs a right to, without effect: rather nothing is erased than a part."""
        same = ", ".join(f"{column} = {column}" for column in _QUOTING)
        with self._session.transaction("try whether this user may erase"):
            self._session.execute(f"UPDATE {self._journal} SET {same} WHERE 1 = 0")
            for table in (self._sql.letters, *([self._kept] if self._has_kept else [])):
                self._session.execute(f"DELETE FROM {table} WHERE 1 = 0")

    def _letters(self, key: str, status: DeadLetterStatus, limit: int) -> list[int]:
        """Returns the ids of dead letters of a key."""
        own, wanted = (self._idiom.comparable(each) for each in ("COALESCE(kafka_key, '')", "{key}"))
        chosen = f"name = {{name}} AND status = {{status}} AND {own} = {wanted}"
        query = self._idiom.limit(f"SELECT id FROM {self._sql.letters} WHERE {chosen} ORDER BY id", "{limit}")
        rows = self._session.query(
            "look for dead letters", query, name=self._name, status=status.value, key=key, limit=limit
        )
        return [int(row[0]) for row in rows]

    def _fitting(self, column: str, text: str) -> str:
        return fitting(text, JOURNAL_TEXTS[column], self._session.encoding)
