"""The journal of a portable outbox: its table, its statements, and a connection to it."""
# ruff: noqa: S608 - names come quoted from the idiom, and every value is a parameter

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from uuid import UUID

from outbox_sdk.errors import AccessDenied, DriverError
from outbox_sdk.finding import Finding, Level
from outbox_sdk.journal import Deed, Entry, new_entry_id
from outbox_sdk.portable.columns import JOURNAL_COLUMNS, JOURNAL_INDEX, JOURNAL_TEXTS
from outbox_sdk.portable.described import Described
from outbox_sdk.portable.idiom import Idiom
from outbox_sdk.portable.names import TableName
from outbox_sdk.portable.rows import fitting
from outbox_sdk.portable.schema_row import read_schema
from outbox_sdk.portable.session import Session
from outbox_sdk.portable.sources import quoted
from outbox_sdk.schema import WITH_JOURNAL

_NAME_LENGTH = 300
_ID_LENGTH = 36


def journal_statements(idiom: Idiom, journal: TableName) -> list[str]:
    """Returns the statements that create a journal, with an index for the last entries of an outbox.

    The texts may be null, since an empty one is in some databases. So ``ended`` tells whether there is an
    outcome.
    """
    texts = "".join(f",\n    {column} {idiom.text_type(size)}" for column, size in JOURNAL_TEXTS.items())
    created = f"""CREATE TABLE {idiom.quote_table(journal)} (
    name {idiom.text_type(_NAME_LENGTH)} NOT NULL,
    id {idiom.text_type(_ID_LENGTH)} NOT NULL,
    begun {idiom.time_type()} DEFAULT ({idiom.now}) NOT NULL,
    ended {idiom.time_type()}{texts},
    PRIMARY KEY (name, id)
){idiom.table_end}"""
    return [created, idiom.create_index(journal, JOURNAL_INDEX)]


def require_journal(dialect: Described, session: Session) -> None:
    """Makes sure that there is a journal with its columns.

    Raises:
        DriverError: There is none; the message says what to run.
    """
    journal = dialect.options.journal
    try:
        found = session.columns(dialect.idiom.quote_table(journal))
    except AccessDenied as error:
        if not lacks_journal(dialect, session):
            raise
        message = f"{error}; if there is no such table yet, run 'outbox migrate'"
        raise AccessDenied(message) from error
    if found is None:
        maker = "outbox migrate" if lacks_journal(dialect, session) else "outbox init"
        message = f"there is no journal table '{journal}' in {dialect.address}"
        raise DriverError(f"{message}; run '{maker}', or correct journalTable", retryable=False)
    if missing := sorted(set(JOURNAL_COLUMNS).difference(found)):
        message = f"table '{journal}' in {dialect.address} lacks {', '.join(missing)}; correct journalTable"
        raise DriverError(message, retryable=False)


def lacks_journal(dialect: Described, session: Session) -> bool:
    """Returns whether the tables are of a version that had no journal, which a migration then adds."""
    noted = read_schema(session, dialect.options.fence, dialect.canonical_name(session))
    return noted is None or noted.version < WITH_JOURNAL


def journal_finding(dialect: Described, session: Session) -> Finding:
    """Judges whether there is a journal; harvesters, who run without one, need no right to it."""
    subject, journal = "journal table", dialect.options.journal
    try:
        found = session.columns(dialect.idiom.quote_table(journal))
    except AccessDenied:
        found = None
        if not lacks_journal(dialect, session):
            return Finding(Level.OK, subject, f"this user may not read '{journal}', and needs not to harvest")
    if found is None:
        maker = "outbox migrate" if lacks_journal(dialect, session) else "outbox init"
        seen = f"this user sees no table '{journal}', in which operators note what they do"
        return Finding(Level.WARNING, subject, seen, f"run '{maker}'")
    if missing := sorted(set(JOURNAL_COLUMNS).difference(found)):
        seen = f"table '{journal}' lacks {', '.join(missing)}"
        return Finding(Level.WARNING, subject, seen, "set journalTable to another name")
    return Finding(Level.OK, subject, f"'{journal}' has its columns")


class JournalStatements:
    """What is sent to a journal.

    Args:
        idiom: How the database writes SQL.
        journal: The table of the journal.
    """

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
    """The ``Journal`` of a portable outbox.

    Args:
        session: The connection.
        outbox: The outbox table, with its schema as far as it is known.
        journal: The table of the journal.
    """

    def __init__(self, session: Session, outbox: TableName, journal: TableName) -> None:
        self._session = session
        self._idiom = session.idiom
        self._name = str(outbox)
        self._sql = JournalStatements(session.idiom, journal)

    def user(self) -> str:
        """Returns the user as whom the session was opened."""
        if not (expression := self._idiom.user):
            return ""
        [(user,)] = self._session.query("ask for the user", f"SELECT {expression}")
        return str(user)

    def begin(self, deed: Deed) -> UUID:
        """Notes what is about to be done, durably."""
        entry = new_entry_id()
        fitted = {column: fitting(text, JOURNAL_TEXTS[column]) for column, text in asdict(deed).items()}
        with self._session.transaction("note a deed"):
            self._session.execute(self._sql.begin, name=self._name, id=str(entry), **fitted)
        return entry

    def end(self, entry: UUID, outcome: str) -> None:
        """Notes what came of it."""
        fitted = fitting(outcome, JOURNAL_TEXTS["outcome"])
        with self._session.transaction("note the outcome of a deed"):
            self._session.execute(self._sql.end, name=self._name, id=str(entry), outcome=fitted)

    def entries(self, limit: int = 100) -> list[Entry]:
        """Returns the last entries, the newest first."""
        rows = self._session.query("read the journal", self._sql.entries, name=self._name, limit=limit)
        return [self._entry(row) for row in rows]

    def close(self) -> None:
        """Disconnects."""
        self._session.close()

    def _entry(self, row: Sequence[Any]) -> Entry:
        number, begun, ended = row[:3]
        *deed, outcome = (self._idiom.read_text(text) or "" for text in row[3:])
        at = self._idiom.read_timestamp(begun)
        return Entry(UUID(str(number)), at, Deed(*deed), None if ended is None else outcome)
