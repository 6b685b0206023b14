"""The journal of a portable outbox: its statements, and a connection to it."""
# ruff: noqa: S608 - names come quoted from the idiom, and every value is a parameter

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from uuid import UUID

from outbox_api.errors import AccessDenied, DriverError
from outbox_api.finding import Finding, Level
from outbox_api.journal import Action, Entry, new_entry_id
from outbox_api.portable.idiom import Idiom
from outbox_api.portable.origin_columns import Described
from outbox_api.portable.rows import fitting
from outbox_api.portable.session import Session
from outbox_api.portable.sources import JOURNAL_COLUMNS, JOURNAL_TEXTS, quoted
from outbox_api.portable.table_idiom import TableName
from outbox_api.portable.tables import Tables


def require_journal(dialect: Described, session: Session) -> None:
    """Makes sure that there is a journal with its columns.

    Raises:
        DriverError: There is none; the message says what to run.
    """
    journal = dialect.names(session).journal
    found = session.columns(dialect.idiom.quote_table(journal))
    if found is None:
        message = f"there is no journal table '{journal}' in {dialect.address}"
        raise DriverError(f"{message}; run 'outbox init', or correct journalTable", retryable=False)
    if missing := sorted(set(JOURNAL_COLUMNS).difference(found)):
        message = f"table '{journal}' in {dialect.address} lacks {', '.join(missing)}; correct journalTable"
        raise DriverError(message, retryable=False)


def journal_finding(dialect: Described, session: Session) -> Finding:
    """Judges whether there is a journal; harvesters, who run without one, need no right to it."""
    subject, journal = "journal table", dialect.names(session).journal
    try:
        found = session.columns(dialect.idiom.quote_table(journal))
    except AccessDenied:
        return Finding(Level.OK, subject, f"this user may not read '{journal}', and needs not to harvest")
    if found is None:
        seen = f"this user sees no table '{journal}', in which operators note what they do"
        return Finding(Level.WARNING, subject, seen, "run 'outbox init'")
    if missing := sorted(set(JOURNAL_COLUMNS).difference(found)):
        seen = f"table '{journal}' lacks {', '.join(missing)}"
        return Finding(Level.WARNING, subject, seen, "set journalTable to another name")
    return Finding(Level.OK, subject, f"'{journal}' has its columns")


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
        self.entries = idiom.limit(
            "SELECT id, begun, ended, operator, via, verb, subject, reason, outcome"
            f" FROM {idiom.snapshot_read(table)} WHERE name = {{name}} ORDER BY begun DESC, id DESC",
            "{limit}",
        )


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
        self._name = str(tables.outbox)
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
        fitted = {column: self._fitting(column, text) for column, text in asdict(action).items()}
        with self._session.transaction("note an action"):
            self._session.execute(self._sql.begin, name=self._name, id=str(entry), **fitted)
        return entry

    def end(self, entry: UUID, outcome: str) -> None:
        """Notes what came of it. Does nothing if there is no such entry, or it has an outcome; idempotent."""
        fitted = self._fitting("outcome", outcome)
        with self._session.transaction("note the outcome of an action"):
            self._session.execute(self._sql.end, name=self._name, id=str(entry), outcome=fitted)

    def entries(self, limit: int = 100) -> list[Entry]:
        """Returns the last entries of this outbox, the newest first, ``limit`` at most."""
        rows = self._session.query("read the journal", self._sql.entries, name=self._name, limit=limit)
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
