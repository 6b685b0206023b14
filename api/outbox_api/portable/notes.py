"""What is noted of an outbox: its identity, the version of its tables, and its takeovers."""
# ruff: noqa: S608 - names and texts come quoted from the idiom, and all else is numbers of our own

from __future__ import annotations

import json
from datetime import datetime
from typing import Any
from uuid import uuid4

from outbox_api.base.errors import AccessDenied
from outbox_api.portable.idiom import Idiom
from outbox_api.portable.rows import storable
from outbox_api.portable.session import AlreadyExists, Session
from outbox_api.portable.sources import quoted
from outbox_api.portable.statements import Statements
from outbox_api.portable.table_idiom import TableName
from outbox_api.portable.tables import Tables
from outbox_api.seams.affinity import MAX_CLUSTER, Takeover
from outbox_api.seams.fence import IDENTITY_DIGITS, perhaps_renamed
from outbox_api.seams.schema import OLDEST, SCHEMA, Schema

REASON_LENGTH = 200
"""Characters of a takeover's reason that are kept."""


def random_identity() -> str:
    """Returns letters and digits that nobody else draws."""
    return uuid4().hex[:IDENTITY_DIGITS]


def ensure_identity(session: Session, sql: Statements) -> str:
    """Returns an outbox's identity, which it creates durably if there is none. Idempotent.

    Afterwards there is a row of notes, which bumps and operators lock first.

    Raises:
        DriverError: The outbox may have been renamed: then what is noted of it must be renamed first.
    """
    name = sql.name
    rows = session.query("read the outbox's identity", sql.identity, name=name)
    if rows and rows[0][0]:
        return str(rows[0][0])
    if former := _without_table(session, sql):
        raise perhaps_renamed(name, former, (sql.fence, sql.notes, sql.history, sql.letters))
    if not rows:
        try:
            with session.transaction("make a note of the outbox"):
                session.execute(sql.make_note, name=name)
        except AlreadyExists:
            pass  # another process was first
    with session.transaction("note the outbox's identity"):
        session.execute(sql.identify, name=name, identity=random_identity())
    [(identity,)] = session.query("read the outbox's identity", sql.identity, name=name)
    return str(identity)


def _without_table(session: Session, sql: Statements) -> set[str]:
    """Returns the names of which more is noted than can be made anew, and of which there is no table."""
    noted = {str(row[0]) for row in session.query("look at the fence", sql.noted)}
    return {name for name in noted if _is_missing(session, name)}


def _is_missing(session: Session, name: str) -> bool:
    schema, _, table = name.rpartition(".")
    try:
        return session.columns(session.idiom.quote_table(TableName(schema, table))) is None
    except AccessDenied:  # it may be there, and be none of this user's
        return False


def schema_query(idiom: Idiom, notes: TableName) -> str:
    """Writes the query for the version of the tables of ``{name}``, and the oldest one that it allows."""
    return f"SELECT version, oldest FROM {idiom.snapshot_read(quoted(idiom, notes))} WHERE name = {{name}}"


def forget_identity(idiom: Idiom, notes: TableName) -> str:
    """Writes the statement after which the outbox ``{name}`` is another one, with ids of its own."""
    return f"UPDATE {quoted(idiom, notes)} SET {idiom.quote('identity')} = NULL WHERE name = {{name}}"


def read_schema(session: Session, names: Tables) -> Schema | None:
    """Returns the version of the tables of an outbox; ``None`` if none is noted."""
    query = schema_query(session.idiom, names.notes)
    rows = session.query("read the version", query, name=names.name)
    return Schema(*map(int, rows[0])) if rows and rows[0][0] is not None else None


def note_schema(idiom: Idiom, notes: TableName, name: str, who: str, *, anew: bool) -> str:
    """Writes the statement that notes this version's tables, without parameters."""
    table, who = idiom.quote_table(notes), idiom.literal(who)
    if not anew:
        return (
            f"UPDATE {table} SET version = {SCHEMA}, oldest = {OLDEST}, noted_by = {who},"
            f" noted_at = {idiom.now} WHERE name = {name} AND (version IS NULL OR version < {SCHEMA})"
        )
    return (
        f"INSERT INTO {table} (name, version, oldest, noted_by, noted_at)"
        f" VALUES ({name}, {SCHEMA}, {OLDEST}, {who}, {idiom.now})"
    )


class Takeovers:
    """The deliberate takeovers of an outbox, in transactions of their own.

    They are noted as JSON: a cluster's number → why its takeover was begun, and when.
    """

    def __init__(self, session: Session, sql: Statements) -> None:
        self._session = session
        self._idiom = session.idiom
        self._sql = sql
        self._name = sql.name

    def read(self) -> list[Takeover]:
        """Returns those that have begun and not ended, ordered by cluster."""
        rows = self._session.query("read the takeovers", self._sql.takeovers, name=self._name)
        noted = self._parsed(rows[0][0]) if rows else {}
        takeovers = (
            Takeover(int(cluster), reason, datetime.fromisoformat(since))
            for cluster, (reason, since) in noted.items()
        )
        return sorted(takeovers, key=lambda takeover: takeover.cluster)

    def begin(self, cluster: int, reason: str) -> bool:
        """Stores that one has begun; returns whether there was none."""
        if not 1 <= cluster <= MAX_CLUSTER:
            raise ValueError(f"{cluster} is no cluster; it is 1 to {MAX_CLUSTER}")
        ensure_identity(self._session, self._sql)
        with self._session.transaction("begin a takeover"):
            noted = self._locked()
            if str(cluster) in noted:
                return False
            since = self._session.now().isoformat()
            self._write(
                {**noted, str(cluster): [storable(reason, self._session.encoding)[:REASON_LENGTH], since]}
            )
        return True

    def end(self, cluster: int) -> bool:
        """Stores that one has ended; returns whether there was one."""
        with self._session.transaction("end a takeover"):
            noted = self._locked()
            known = noted.pop(str(cluster), None) is not None
            if known:
                self._write(noted)
        return known

    def _locked(self) -> dict[str, Any]:
        rows = self._session.fetch(self._sql.hold_note, name=self._name)
        return self._parsed(rows[0][0]) if rows else {}

    def _parsed(self, text: Any) -> dict[str, Any]:
        return dict(json.loads(self._idiom.read_text(text) or "{}"))

    def _write(self, noted: dict[str, Any]) -> None:
        text = json.dumps(noted)
        self._session.execute(self._sql.set_takeovers, name=self._name, takeovers=text)
