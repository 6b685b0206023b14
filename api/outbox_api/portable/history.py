"""What was seen of an outbox in each minute of the last day: a table that never has more than a day."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from outbox_api.portable.session import AlreadyExists, Session
from outbox_api.portable.statements import Statements

KEPT_MINUTES = 1440
"""How many minutes of an outbox are kept: a later one takes the row of the one a day before."""


class MinuteRow(NamedTuple):
    """What was seen in a minute: its number since 1970, and a text."""

    minute: int
    figures: str


class PortableHistory:
    """A connection to the minutes of an outbox; used by one thread.

    Several processes may look at one outbox. What is noted first of a minute stays, so all of them read the
    same. Each statement is a transaction of its own. The rights to SELECT, INSERT and UPDATE are enough.

    Every method but ``close`` raises ``DriverError`` if the database refuses or cannot be reached.
    """

    def __init__(self, session: Session, sql: Statements) -> None:
        self._session = session
        self._statements = HistoryStatements(sql)
        self._name = sql.name

    def beside(self, dialect: Any) -> PortableHistory:
        """Returns the minutes of another outbox of this database, over the same connection."""
        return PortableHistory(self._session, Statements(dialect.idiom, dialect.names(self._session)))

    def note(self, minute: int, figures: str) -> bool:
        """Notes what was seen in a minute; returns ``False`` if something is noted of it already."""
        place = {"name": self._name, "slot": minute % KEPT_MINUTES}
        rows = self._session.query("read a minute", self._statements.noted, **place)
        if rows and int(rows[0][0]) == minute:
            return False
        statement = self._statements.renew if rows else self._statements.add
        try:
            with self._session.transaction("note a minute"):
                return self._session.execute(statement, **place, minute=minute, figures=figures) > 0
        except AlreadyExists:
            return False

    def read(self, after: int) -> Sequence[MinuteRow]:
        """Returns the minutes after one, in their order."""
        rows = self._session.query("read the minutes", self._statements.read, name=self._name, minute=after)
        text = self._session.idiom.read_text
        return [MinuteRow(int(minute), text(figures) or "") for minute, figures in rows]

    def close(self) -> None:
        """Disconnects. Idempotent, and never raises."""
        self._session.close()


class HistoryStatements:
    """The statements about the minutes of one outbox.

    Attributes:
        noted: Returns the minute in a slot.
        add: Adds the row of a slot.
        renew: Makes the row of a slot that of another minute.
        read: Returns the minutes after ``{minute}``.
    """

    def __init__(self, sql: Statements) -> None:
        idiom, history = sql.idiom, sql.history
        # ruff: noqa: S608 - the table's name is quoted, and every value is a parameter
        seen, place = idiom.snapshot_read(history), "name = {name} AND slot = {slot}"
        self.noted = f"SELECT epoch_minute FROM {seen} WHERE {place}"
        self.add = (
            f"INSERT INTO {history} (name, slot, epoch_minute, figures)"
            " VALUES ({name}, {slot}, {minute}, {figures})"
        )
        self.renew = (
            f"UPDATE {history} SET epoch_minute = {{minute}}, figures = {{figures}}"
            f" WHERE {place} AND epoch_minute <> {{minute}}"
        )
        self.read = (
            f"SELECT epoch_minute, figures FROM {seen}"
            " WHERE name = {name} AND epoch_minute > {minute} ORDER BY epoch_minute"
        )
