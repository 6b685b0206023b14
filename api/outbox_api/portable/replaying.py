"""Stashes kept records again, page by page, with its progress in the same transaction."""
# ruff: noqa: S608 - names come quoted from the idiom, and every value is a parameter

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from outbox_api.base.errors import DriverError
from outbox_api.base.record import Record
from outbox_api.portable.journal import JournalStatements, PortableJournal
from outbox_api.portable.kept import PortableKept
from outbox_api.portable.rows import bound
from outbox_api.portable.session import AlreadyExists
from outbox_api.portable.sources import COLUMNS, EXTRAS, quoted
from outbox_api.portable.statements import Statements, stash
from outbox_api.portable.tables import Tables
from outbox_api.seams.journal import Action
from outbox_api.seams.kept import Chosen, KeptRecord
from outbox_api.seams.replay import REPLAY_HEADER, Replay, ReplayState, replay_entry

PAGE_BYTES = 16 << 20
"""How many bytes of keys and values one transaction stashes, about, if more than one record."""


class PortableReplays:
    """An operator's connection to the replays of one outbox; used by one thread.

    It may be used while leaders harvest, and beside others that go on with the same replay: each page is
    stashed by one of them. Every method raises ``DriverError`` if the database refuses or cannot be reached;
    a call that failed with a retryable one can be repeated over a new connection.

    Args:
        kept: The connection to the kept records.
        tables: The tables of the outbox, which itself has its schema as far as it is known.

    Attributes:
        kept: As given.
        journal: The journal, over the same connection.
    """

    def __init__(self, kept: PortableKept, tables: Tables) -> None:
        self.kept = kept
        self._session = session = kept.session
        self._idiom = idiom = session.idiom
        self._sql = Statements(idiom, tables)
        self._name = self._sql.name
        self._notes = JournalStatements(idiom, tables.journal)
        self.journal = PortableJournal(session, tables)
        journal = quoted(idiom, tables.journal)
        entry, columns = "name = {name} AND id = {id}", "begun, subject, outcome, ended, id"
        self._look = f"SELECT {columns} FROM {idiom.snapshot_read(journal)} WHERE {entry}"
        self._hold = idiom.locking_select(columns, journal, entry, idiom.exclusive_lock)
        # An entry of somebody who goes on with a replay has no outcome until it ends.
        self._list = idiom.limit(
            f"SELECT {columns} FROM {idiom.snapshot_read(journal)} WHERE name = {{name}} AND verb = 'replay'"
            " AND (ended IS NOT NULL OR outcome IS NOT NULL)"
            " ORDER BY CASE WHEN ended IS NULL THEN 0 ELSE 1 END, begun DESC",
            "{limit}",
        )
        self._note = f"UPDATE {journal} SET outcome = {{outcome}} WHERE {entry}"
        self._await = idiom.await_changes.format(table=quoted(idiom, tables.kept))
        found = session.columns(idiom.quote_table(tables.outbox)) or ()
        self._extras = [name for name in EXTRAS if name in found]
        self._stash = stash(idiom, self._sql.outbox, {name: name for name in (*COLUMNS[1:], *self._extras)})

    def newest(self) -> int:
        """Returns the greatest position of a kept record, than which none appears later that is not greater.

        Waits for the purges that are under way, by whose end lower positions may appear.
        """
        with self._session.transaction("look for the last kept record", reads=True):
            last = self.kept.last_position()  # may read the whole table, and holds up nobody
        with self._session.transaction("wait for the purges under way"):
            if self._await:
                self._session.execute(self._await)
            else:
                # Notes first, as bumps do: two that lock several rows might wait for each other.
                self._session.fetch(self._sql.hold_note, name=self._name)
                self._session.fetch(self._sql.hold_lanes, name=self._name)
        return last

    def find(self, name: str) -> Replay | None:
        """Returns the replay of a name; ``None`` if there is none. Reads only."""
        with self._session.transaction("look for a replay", reads=True):
            return self._found(self._look, name)

    def latest(self, limit: int) -> list[Replay]:
        """Returns replays, those under way first, then the newest first; reads ``limit`` entries at most."""
        rows = self._session.query("look for replays", self._list, name=self._name, limit=limit)
        named = [(self._idiom.read_text(row[1]) or "").partition(":")[0] for row in rows]
        return [
            self._read(name, row)
            for name, row in zip(named, rows, strict=True)
            if UUID(str(row[4])) == replay_entry(name)  # not one of somebody who went on with it
        ]

    def give_up(self, name: str) -> Replay | None:
        """Ends a replay as it is; returns it, with its state if this has ended it, or ``None`` for none."""
        with self._session.transaction("give up a replay"):
            found = self._found(self._hold, name)
            if found is None or found.state is None:
                return found
            outcome = f"given up: {found.state.progress}"
            self._session.execute(self._notes.end, **self._entry(name), outcome=outcome)
            return replace(found, outcome=outcome, ended=self._session.now())

    def begin(self, name: str, action: Action, state: ReplayState) -> bool:
        """Notes that a replay begins, durably; returns whether there was none of this name."""
        noted = self.journal.fitting(action)
        try:
            with self._session.transaction("note a replay"):
                self._session.execute(self._notes.begin, **self._entry(name), **noted)
                self._session.execute(self._note, **self._entry(name), outcome=state.as_json())
        except AlreadyExists:
            return False
        return True

    def step(self, name: str, chosen: Chosen, limit: int, topic: str = "") -> Replay:
        """Stashes the next records of a replay in the order of their positions; ends it if there are none.

        They take new ids, and thus their place behind everything in the outbox. Each has the name as a header
        behind its own.

        Args:
            name: The replay's name.
            chosen: Which records; those behind its last position and up to its greatest are taken.
            limit: How many at most; fewer where they are large.
            topic: The topic that replaces theirs; empty for their own. Then their partitions are left out.

        Returns:
            The replay, as it is by now.

        Raises:
            DriverError: There is no such replay, or the outbox cannot hold a record; nothing was stashed.
        """
        with self._session.transaction("replay kept records"):
            found = self._found(self._hold, name)
            if found is None:
                raise DriverError(f"the journal has no replay '{name}' any more", retryable=False)
            if (state := found.state) is None:
                return found
            wanted = replace(chosen, through=state.through)
            if not (reached := self.kept.reach(wanted, state.position, limit, PAGE_BYTES)):
                self._session.execute(self._notes.end, **self._entry(name), outcome=state.result)
                return replace(found, outcome=state.result, ended=self._session.now())
            records = self.kept.page(replace(chosen, through=reached), state.position, limit)
            self._session.execute_many(self._stash, [self._row(name, each, topic) for each in records])
            state = replace(state, position=reached, done=state.done + len(records))
            self._session.execute(self._note, **self._entry(name), outcome=state.as_json())
            return replace(found, state=state)

    def waiting(self, limit: int) -> int:
        """Returns how many rows wait in the outbox that are of no parked key; counts ``limit`` at most."""
        [(count,)] = self._session.query("count rows", self._sql.flowing, name=self._name, limit=limit)
        return int(count)

    def close(self) -> None:
        """Disconnects. Idempotent, and never raises."""
        self._session.close()

    def _entry(self, name: str) -> dict[str, object]:
        return {"name": self._name, "id": str(replay_entry(name))}

    def _found(self, query: str, name: str) -> Replay | None:
        rows = self._session.fetch(query, **self._entry(name))
        return self._read(name, rows[0]) if rows else None

    def _read(self, name: str, row: Sequence[Any]) -> Replay:
        begun, subject, outcome, ended = row[:4]
        text, moment = self._idiom.read_text, self._idiom.read_timestamp
        told = text(outcome) or ""
        if ended is not None:
            return Replay(name, moment(begun), text(subject) or "", None, told, moment(ended))
        return Replay(name, moment(begun), text(subject) or "", ReplayState.read(told))

    def _row(self, name: str, kept: KeptRecord, topic: str) -> dict[str, object]:
        record = kept.record
        headers = (*record.headers, (REPLAY_HEADER, name))
        try:
            values = bound(self._idiom, Record(topic or record.topic, record.key, record.value, headers))
        except ValueError as error:
            record = record._replace(fault=str(error))
        if record.fault:
            message = f"the kept record at position {kept.position} cannot be stashed: {record.fault}"
            raise DriverError(message, retryable=False)
        extras = (None if topic else record.partition, record.timestamp_ms)
        placed = {each: value for each, value in zip(EXTRAS, extras, strict=True) if each in self._extras}
        return {**values, **placed}
