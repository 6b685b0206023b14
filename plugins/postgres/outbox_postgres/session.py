"""Statements over one connection, whose errors say what was being done; rows that others have locked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from time import monotonic
from typing import Any

import psycopg
from outbox_api import portable
from outbox_api.portable import TableName
from outbox_api.portable.session import translated
from psycopg.conninfo import make_conninfo

from outbox_postgres.errors import STANDBY_CURE
from outbox_postgres.search_path import Connection, SilenceError
from outbox_postgres.statements import BY_RANGES, PLANNING

_COLUMNS = """
SELECT attname FROM pg_attribute
WHERE attrelid = to_regclass(%s)::oid AND attnum > 0 AND NOT attisdropped
"""


_WAITING_FOR_STANDBYS = """
SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND datname = current_database()
"""


def _standbys_away(parameters: Mapping[str, str]) -> str:
    """Says that sessions wait for a synchronous standby; empty if none does, or the server does not tell."""
    with (
        suppress(psycopg.Error),
        psycopg.connect(make_conninfo(**parameters), autocommit=True) as connection,
    ):
        row = connection.execute(_WAITING_FOR_STANDBYS).fetchone()
        if row and row[0]:
            return f"commits wait for a synchronous standby that is away (SyncRep: {row[0]}): {STANDBY_CURE}"
    return ""


def array(numbers: Sequence[int]) -> str:
    """Writes an array of integers, several times cheaper than psycopg adapts a list of them."""
    return f"{{{','.join(map(str, numbers))}}}"


def text_array(texts: Iterable[str | None]) -> str:
    """Writes an array of texts; see :func:`array`."""
    escaped = [
        "NULL" if text is None else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        for text in texts
    ]
    return f"{{{','.join(escaped)}}}"


class Session(portable.Session):
    """Sends statements over a connection to an outbox.

    What harvests is sent as it stands, with numbered parameters, by :meth:`rows` and :meth:`send`; everything
    else as of any portable dialect.

    Attributes:
        begins: Whether changes need a transaction, as they may be several statements.
    """

    begins = True

    def __init__(self, connection: Connection, *arguments: Any, watches: bool = False) -> None:
        super().__init__(connection, *arguments, watches=watches)
        connection.watches = watches
        unicode = connection.info.parameter_status("server_encoding") == "UTF8"
        self.encoding = "utf-8" if unicode else "ascii"

    @contextmanager
    def translated(self, doing: str, but: type[psycopg.Error] | tuple[()] = ()) -> Iterator[None]:
        """Turns psycopg's errors into driver errors, but for those that the caller handles.

        If it was waited in vain, for a lock or for an answer, they say whether a standby is away.
        """
        try:
            yield
        except but:
            raise
        except psycopg.Error as error:
            failure = translated(error, self.idiom, doing, self.address, self._secrets)
            waited = isinstance(error, psycopg.errors.LockNotAvailable | SilenceError)
            if waited and (away := _standbys_away(self.connection.parameters)):
                failure = type(failure)(f"{failure}; {away}", retryable=failure.retryable)
            raise failure from self._cause(error)

    def plan(self) -> None:
        """Has the server plan for the head of a table, see ``PLANNING``."""
        with self.translated("set up the session"):
            self.connection.execute(PLANNING)

    def find_by_ranges(self) -> None:
        """Has the server find kept records by the index of their positions, see ``BY_RANGES``."""
        with self.translated("set up the session"):
            self.connection.execute(BY_RANGES)

    def rows(self, statement: str, parameters: tuple[object, ...], doing: str) -> list[tuple[Any, ...]]:
        """Returns all rows of a statement's result."""
        with self.translated(doing):
            return self.send(statement, parameters).fetchall()

    def send(self, statement: str, parameters: tuple[object, ...]) -> psycopg.Cursor[Any]:
        """Sends a statement; psycopg's errors pass through."""
        cursor: psycopg.Cursor[Any] = self.connection.execute(
            statement, parameters, prepare=self.connection.prepare_threshold is not None, binary=True
        )
        return cursor

    @contextmanager
    def transaction(self, doing: str, *, reads: bool = False) -> Iterator[None]:
        """Commits what is executed within; see the base class. What only reads needs no transaction."""
        self._must_not_watch(doing, reads=reads)
        alone = (reads or not self.begins) and not self.connection.watches
        with self.translated(doing), nullcontext() if alone else self.connection.transaction():
            self._cursor = psycopg.Cursor(self.connection)
            yield

    def columns(self, table: str) -> list[str] | None:
        """Returns the names of a table's columns, or ``None`` where there is none; needs no right to it."""
        with self.translated(f"look at table {table}"):
            found = psycopg.Cursor(self.connection).execute(_COLUMNS, (table,)).fetchall()
        return [str(row[0]) for row in found] or None


LOOK_INTERVAL = 1.0
"""Seconds between two looks at rows that were locked."""


def blockers(session: Session, outbox: TableName, ids: Iterable[int]) -> str:
    """Returns who has locked rows, in words; see :func:`lockers`."""
    sql = f"SELECT xmax::text FROM {outbox} WHERE id = ANY ($1::bigint[])"  # noqa: S608 - the name is quoted
    found = session.rows(sql, (list(ids),), "look who has locked rows")
    return lockers(session, [row[0] for row in found])


def lockers(session: Session, transactions: Sequence[str]) -> str:
    """Returns whose transactions these are, in words: process, application, user, and since when."""
    sql = """
        SELECT DISTINCT a.pid, coalesce(nullif(a.application_name, ''), '?'), a.usename::text,
               to_char(a.xact_start, 'YYYY-MM-DD HH24:MI:SSOF')
        FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
        WHERE l.locktype = 'transactionid' AND l.granted AND l.transactionid::text = ANY ($1::text[])"""
    found = session.rows(sql, (list(transactions),), "look who has locked rows")
    return (
        ", ".join(
            f"server process {pid} ({application}, user {user}, since {since or '?'})"
            for pid, application, user, since in found
        )
        or "a transaction that is not visible, perhaps a prepared one"
    )


class LockedRows:
    """Remembers for one connection which rows are locked. Does no I/O.

    A mark waits for a locked row for ``lockTimeout`` at most, and every other key of the lane waits with it.
    After that time, marks leave out the whole key of each locked row, so that the key keeps its order.

    Args:
        clock: Seconds on a clock that never goes back.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.keys: frozenset[str] = frozenset()
        self._clock = clock
        self._rows: dict[int, str] = {}
        self._look_due = 0.0

    @property
    def ids(self) -> list[int]:
        """The rows' ids."""
        return [*self._rows]

    def due(self) -> bool:
        """Returns whether it is time to look at the rows again."""
        return bool(self._rows) and self._clock() >= self._look_due

    def found(self, rows: Mapping[int, str]) -> None:
        """Adds rows that are locked: id → key."""
        self._note({**self._rows, **rows})

    def looked(self, ids: Collection[int]) -> None:
        """Keeps those of the rows that are still locked."""
        self._note({number: key for number, key in self._rows.items() if number in ids})

    def _note(self, rows: dict[int, str]) -> None:
        self._rows = rows
        self.keys = frozenset(rows.values())
        self._look_due = self._clock() + LOOK_INTERVAL
