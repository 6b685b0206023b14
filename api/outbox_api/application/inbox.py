"""Tells a consumer which records it has had before, in the transaction of what it does with them.

An inbox opens, commits and rolls back nothing: a record is noted together with its effects, or not at all.
It works on what a :class:`outbox_api.Stasher` works on; :class:`AsyncInbox` on what ``AsyncStasher`` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any

from outbox_api.application.registry import Seam, find
from outbox_api.application.target import find_async_target, find_target
from outbox_api.base.errors import ConfigError, RecordError
from outbox_api.base.record import ID_HEADER
from outbox_api.portable.inbox import LENGTHS, InboxStatements
from outbox_api.support.statement import Rename, Statement, Style, Values, statement_of

AT_MOST = 10_000
"""How many notes are deleted at a time."""


class _Notes:
    """What both forms of an inbox share.

    Args:
        consumer: Whose inbox: who notes a record does not note it for others. The name of a consumer group
            will do, of up to 100 visible characters of ASCII.
        dialect: The driver name of the database's dialect, whose plugin must be installed.
        table: The table, optionally with its schema, which consumers may share.

    Raises:
        PluginError: The dialect is not installed.
        ConfigError: ``table`` is not the name of a table, or ``consumer`` not a name.
    """

    def __init__(self, consumer: str, dialect: str = "postgres", table: str = "outbox_inbox") -> None:
        if problem := _problem("consumer", consumer):
            raise ConfigError(problem)
        self._consumer = consumer
        self._dialect = dialect
        self._table = table
        _statements(dialect, table)  # raises for what cannot be used

    def ddl(self) -> Sequence[str]:
        """Returns the statements that create the table, for the migrations of the consumer's database."""
        return _statements(self._dialect, self._table).ddl

    def _first(self, style: Style, rename: Rename = str) -> Statement:
        return statement_of(_statements(self._dialect, rename(self._table)).first, style)

    def _forget(self, style: Style, rename: Rename = str) -> Statement:
        return statement_of(_statements(self._dialect, rename(self._table)).forget, style)

    @staticmethod
    def id_of(headers: Iterable[tuple[str, Any]] | Mapping[str, Any] | None) -> str:
        """Returns the id that the harvester has written into a message.

        Args:
            headers: The message's: pairs of a name and bytes or text, as clients of Kafka have them, or a
                mapping. Of several headers of the name the last counts.

        Raises:
            RecordError: There is none.
        """
        pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
        found = [value for name, value in pairs if name == ID_HEADER and value is not None]
        if not found:
            raise RecordError(
                f"the message has no header {ID_HEADER}: have the harvester write it "
                "(transform: [{driver: identity}]), or give the inbox an id of your own"
            )
        value = bytes(found[-1]) if isinstance(found[-1], bytearray | memoryview) else found[-1]
        return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

    def _noted(self, record_id: str) -> Values:
        if problem := _problem("record_id", record_id):
            raise RecordError(problem)
        return {"consumer": self._consumer, "record_id": record_id}

    def _old(self, older_than: timedelta, at_most: int) -> Values:
        return {"consumer": self._consumer, "seconds": older_than.total_seconds(), "limit": at_most}


class Inbox(_Notes):
    """Tells a consumer which records it has had. Holds no connection, so one serves the whole process."""

    def first(self, connection: Any, record_id: str) -> bool:
        """Notes a record in the transaction that ``connection`` is in; returns whether it had not been noted.

        If another transaction has noted it and has not ended, this one waits for that, or fails with the
        driver's error, depending on the database and the isolation; roll back then, and read the record
        again. Never do two that have received ``True`` for a record both commit.

        Args:
            connection: As for :meth:`outbox_api.Stasher.stash`, as are the errors raised.
            record_id: What tells the record from all others, and is the same when it is repeated: see
                :meth:`id_of`. 1 to 300 visible characters of ASCII.

        Raises:
            RecordError: ``record_id`` cannot be noted; the transaction is as it was.
            RuntimeError: The driver does not tell whether it was; roll back.
        """
        values = self._noted(record_id)
        return _is_one(find_target(connection, self._first, "Inbox").execute((values,)))

    def forget(self, connection: Any, older_than: timedelta, at_most: int = AT_MOST) -> int:
        """Deletes notes of this consumer, the oldest first, in the transaction that ``connection`` is in.

        Commit and repeat this until it returns 0. Until the commit, consumers on MySQL and MariaDB may have
        to wait, as does everybody who writes to SQLite.

        Args:
            connection: As for :meth:`first`.
            older_than: Notes of at least this age are deleted, by the database's clock.
            at_most: How many at a time.

        Returns:
            How many it deleted.
        """
        return find_target(connection, self._forget, "Inbox").execute((self._old(older_than, at_most),))


class AsyncInbox(_Notes):
    """An inbox over asynchronous connections; the verbs and errors are those of :class:`Inbox`."""

    async def first(self, connection: Any, record_id: str) -> bool:
        """Notes a record, and returns whether it had not been noted; see :meth:`Inbox.first`."""
        values = self._noted(record_id)
        return _is_one(await find_async_target(connection, self._first, "Inbox").execute((values,)))

    async def forget(self, connection: Any, older_than: timedelta, at_most: int = AT_MOST) -> int:
        """Deletes old notes, and returns how many; see :meth:`Inbox.forget`."""
        target = find_async_target(connection, self._forget, "Inbox")
        return await target.execute((self._old(older_than, at_most),))


@lru_cache(maxsize=1000)
def _statements(dialect: str, table: str) -> InboxStatements:
    driver = find(Seam.DIALECT, dialect)
    made = driver.create(driver.options(table=table))
    return InboxStatements(made.idiom, made.options.outbox)


def _is_one(rows: int) -> bool:
    if rows not in (0, 1):
        raise RuntimeError(
            "the driver does not tell whether the record was noted, as in a pipeline of psycopg: leave the "
            "pipeline first, or take another driver"
        )
    return rows == 1


def _problem(what: str, text: object) -> str:
    # No database pads, folds, cuts or normalizes such a text, nor takes it for null.
    if isinstance(text, str) and re.fullmatch(rf"[!-~]{{1,{LENGTHS[what]}}}", text):
        return ""
    return f"{what} is {text!r:.60}; it has 1 to {LENGTHS[what]} visible characters of ASCII, without blanks"
