"""The journal of a portable outbox: its statements, and a connection to it."""
# ruff: noqa: S608 - names come quoted from the idiom, and every value is a parameter

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from uuid import UUID

from outbox_api.portable.idiom import Idiom
from outbox_api.portable.rows import fitting
from outbox_api.portable.session import Session
from outbox_api.portable.sources import JOURNAL_TEXTS, quoted
from outbox_api.portable.table_idiom import TableName
from outbox_api.portable.tables import Tables
from outbox_api.seams.journal import ALL_ENTRIES, Action, ChosenEntries, Entry, new_entry_id


class JournalStatements:
    """What is sent to a journal."""

    def __init__(self, idiom: Idiom, journal: TableName) -> None:
        table = quoted(idiom, journal)
        self.begin = (
            f"INSERT INTO {table} (name, id, operator, via, verb, subject, reason)"
            f" VALUES ({{name}}, {{id}}, {{operator}}, {{via}}, {{verb}}, {{subject}},"
            " {reason})"
        )
        self.end = (
            f"UPDATE {table} SET outcome = {{outcome}}, ended = {idiom.now}"
            " WHERE name = {name} AND id = {id} AND ended IS NULL"
        )
        self._idiom, self._seen = idiom, idiom.snapshot_read(table)

    def entries(self, chosen: ChosenEntries) -> tuple[str, dict[str, object]]:
        """Makes the query for the last ``{limit}`` entries that are chosen, and its other parameters."""
        conditions, values = ["name = {name}"], dict[str, object]()
        if chosen.operator:
            # A bracket has a meaning in some databases, and may not be escaped in others.
            contained = re.sub(r"([!%_])", r"!\1", chosen.operator).replace("[", "_")
            conditions.append("operator LIKE {operator} ESCAPE '!'")
            values["operator"] = f"%{contained}%"
        if chosen.verb:
            conditions.append("verb = {verb}")
            values["verb"] = chosen.verb
        for name, moment, compares in (("since", chosen.since, ">="), ("until", chosen.until, "<")):
            if moment is not None:
                conditions.append(f"begun {compares} {{{name}}}")
                values[name] = self._idiom.time_parameter(moment)
        if chosen.after is not None:
            begun = f"(SELECT begun FROM {self._seen} WHERE name = {{name}} AND id = {{after}})"
            conditions.append(f"(begun < {begun} OR (begun = {begun} AND id < {{after}}))")
            values["after"] = str(chosen.after)
        query = (
            "SELECT id, begun, ended, operator, via, verb, subject, reason, outcome"
            f" FROM {self._seen} WHERE {' AND '.join(conditions)} ORDER BY begun DESC, id DESC"
        )
        return self._idiom.limit(query, "{limit}"), values


class PortableJournal:
    """A connection to the journal of one outbox; used by one thread.

    An action is noted before it is done, in a transaction of its own, and its outcome afterwards. So nothing
    is done that is not noted, and what was interrupted can be told. Texts that are too long for the table are
    cut; characters that it cannot hold are replaced.

    Every method raises ``DriverError`` if the database refuses or cannot be reached.

    Args:
        session: The connection.
        tables: The tables of the outbox, which itself has its schema as far as it is known.
    """

    def __init__(self, session: Session, tables: Tables) -> None:
        self._session = session
        self._idiom = session.idiom
        self._name = tables.name
        self._sql = JournalStatements(session.idiom, tables.journal)

    def user(self) -> str:
        """Returns the user as whom this process has signed in; empty if the database knows no users."""
        if not (expression := self._idiom.user):
            return ""
        [(user,)] = self._session.query("ask for the user", f"SELECT {expression}")
        return str(user)

    def begin(self, action: Action) -> UUID:
        """Notes what is about to be done, durably; returns the id of the entry."""
        entry = new_entry_id()
        with self._session.transaction("note an action"):
            self._session.execute(self._sql.begin, name=self._name, id=str(entry), **self.fitting(action))
        return entry

    def fitting(self, action: Action) -> dict[str, object]:
        """Returns the columns of an action, cut to what the table can hold."""
        return {column: self._fitting(column, text) for column, text in asdict(action).items()}

    def end(self, entry: UUID, outcome: str) -> None:
        """Notes what came of it. Does nothing if there is no such entry, or it has an outcome; idempotent."""
        fitted = self._fitting("outcome", outcome)
        with self._session.transaction("note the outcome of an action"):
            self._session.execute(self._sql.end, name=self._name, id=str(entry), outcome=fitted)

    def entries(self, limit: int = 100, chosen: ChosenEntries = ALL_ENTRIES) -> list[Entry]:
        """Returns the last entries of this outbox that are chosen, the newest first, ``limit`` at most."""
        query, values = self._sql.entries(chosen)
        rows = self._session.query("read the journal", query, name=self._name, limit=limit, **values)
        return [self._entry(row) for row in rows]

    def close(self) -> None:
        """Disconnects. Idempotent, and never raises."""
        self._session.close()

    def _fitting(self, column: str, text: str) -> str:
        return fitting(text, JOURNAL_TEXTS[column], self._session.encoding)

    def _entry(self, row: Sequence[Any]) -> Entry:
        number, begun, ended = row[:3]
        *action, outcome = (self._idiom.read_text(text) or "" for text in row[3:])
        at = self._idiom.read_timestamp(begun)
        return Entry(UUID(str(number)), at, Action(*action), None if ended is None else outcome)
