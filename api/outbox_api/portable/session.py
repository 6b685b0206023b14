"""Transactions over one DB-API connection, whose errors become driver errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import lru_cache
from typing import Any, Protocol

from outbox_api.base.errors import AccessDenied, DriverError, RolledBack, ServerFull
from outbox_api.portable.by_ids import ChangeByIds, SelectByIds
from outbox_api.portable.idiom import ErrorKind, Idiom
from outbox_api.support.statement import Statement, Style

_IDS = "{{ids}}"
"""Stands in a statement for the list of ids, which is written into it as numbers just before it is sent."""

_statement = lru_cache(maxsize=1024)(Statement)


class TableMissing(DriverError):  # noqa: N818 - reads as what happened, like its siblings
    """A table does not exist."""

    code = "OUTBOX-NO-TABLE"


class AlreadyExists(DriverError):  # noqa: N818 - as above
    """A table or a row exists already."""


class LockTimeout(RolledBack):
    """Another transaction has locked a row for longer than the session waits."""


class Session:
    """A connection as the dialect uses it.

    Args:
        connection: A DB-API connection that commits only when told to.
        idiom: How its database writes SQL.
        address: Where the database is, in words, for errors; without secrets.
        secrets: What must not appear in an error.
        watches: Whether it only looks. Then every transaction that changes something is refused.

    Attributes:
        encoding: Python's name of the characters that columns of text can hold.
    """

    encoding = "utf-8"

    def __init__(
        self,
        connection: Any,
        idiom: Idiom,
        address: str,
        secrets: Sequence[str] = (),
        *,
        watches: bool = False,
    ) -> None:
        self.connection = connection
        self.idiom = idiom
        self.address = address
        self._secrets = secrets
        self._watches = watches
        self._begin_reading = idiom.begin_watching if watches else ""
        self._cursor: Any = None

    @contextmanager
    def transaction(self, doing: str, *, reads: bool = False) -> Iterator[None]:
        """Commits what is executed within; rolls back if anything is raised, and passes the error on.

        Args:
            doing: What is being done, for errors.
            reads: Whether it changes nothing. Each query may see the tables at a moment of its own.

        Raises:
            DriverError: The database refused, or is gone.
        """
        self._must_not_watch(doing, reads=reads)
        try:
            try:
                self._cursor = self.connection.cursor()
                if begin := self._begin_reading if reads else self.idiom.begin:
                    self._cursor.execute(begin)
                yield
                self.connection.commit()
            except BaseException:
                with suppress(Exception):
                    self.connection.rollback()
                raise
            finally:
                with suppress(Exception):
                    self._cursor.close()
        except self.idiom.errors as error:
            raise translated(error, self.idiom, doing, self.address, self._secrets) from self._cause(error)

    def query(self, doing: str, sql: str, **values: object) -> Sequence[Sequence[Any]]:
        """Executes one query in a transaction of its own and returns its rows.

        Raises:
            DriverError: The database refused, or is gone.
        """
        with self.transaction(doing, reads=True):
            return self.fetch(sql, **values)

    def now(self) -> datetime:
        """Returns the present time by the database's clock, within a transaction."""
        [(moment,)] = self.fetch(self.idiom.present or f"SELECT {self.idiom.now}")
        return self.idiom.read_timestamp(moment)

    def ask_time(self) -> datetime:
        """Returns the present time as :meth:`now`, in a transaction of its own."""
        with self.transaction("ask for the time", reads=True):
            return self.now()

    def fetch(self, sql: str, **values: object) -> Sequence[Sequence[Any]]:
        """Executes a query in the transaction and returns its rows."""
        return self.idiom.fetch_rows(self._execute(sql, values))

    def execute(self, sql: str, **values: object) -> int:
        """Executes a change in the transaction and returns how many rows it touched."""
        return int(self._execute(sql, values).rowcount)

    def execute_many(self, sql: str, rows: Sequence[Mapping[str, object]]) -> int:
        """Executes a change for each of the rows, in order; returns how many rows it touched in all.

        Not every driver counts them; one that does not returns less.
        """
        if not rows:
            return 0
        statement = _statement(sql, self.idiom.style)
        self._cursor.executemany(statement.text, [statement.arguments(row) for row in rows])
        return int(self._cursor.rowcount)

    def execute_by_ids(self, change: ChangeByIds, ids: Sequence[int], **values: object) -> int:
        """Executes a change of rows by their ids, for as many ids at a time as the database takes.

        Returns how many rows it touched in all.
        """
        sql, touched = self.idiom.change_by_ids(change, _IDS), 0
        for part in self._parts(ids):
            if change.copy:
                self._execute(change.copied(change.within(_IDS)), values, part)
            touched += int(self._execute(sql, values, part).rowcount)
        return touched

    def fetch_by_ids(self, query: SelectByIds, ids: Sequence[int], **values: object) -> list[Sequence[Any]]:
        """Executes a query for rows by their ids; see :meth:`execute_by_ids`."""
        sql = query.sql(_IDS)
        return [
            row
            for part in self._parts(ids)
            for row in self.idiom.fetch_rows(self._execute(sql, values, part))
        ]

    def execute_ddl(self, ddl: str) -> None:
        """Executes a statement without parameters, as it is written."""
        self._cursor.execute(ddl)

    def columns(self, table: str) -> list[str] | None:
        """Returns the names of a table's columns in lower case, or ``None`` where there is no such table."""
        try:
            with self.transaction(f"look at table {table}", reads=True):
                name = table.replace("{", "{{").replace("}", "}}")
                return self._described(f"SELECT * FROM {name} WHERE 1 = 0")  # noqa: S608 - quoted
        except TableMissing:
            return None

    def _described(self, sql: str) -> list[str]:
        return [str(column[0]).lower() for column in self._execute(sql, {}).description]

    def close(self) -> None:
        """Disconnects. Idempotent, and never raises."""
        with suppress(Exception):
            self.connection.close()

    def _must_not_watch(self, doing: str, *, reads: bool) -> None:
        if self._watches and not reads:
            message = f"cannot {doing} in {self.address}: this connection was opened to look only"
            raise DriverError(message, retryable=False)

    def _parts(self, ids: Sequence[int]) -> list[str]:
        size = self.idiom.max_ids
        return [",".join(map(str, ids[start : start + size])) for start in range(0, len(ids), size)]

    def _execute(self, sql: str, values: Mapping[str, object], ids: str = "") -> Any:
        statement = _statement(sql, self.idiom.style)
        text = statement.text.replace("{ids}", ids) if ids else statement.text
        arguments = statement.arguments(values)
        # Without parameters some drivers take percent signs and colons for what they are.
        self._cursor.execute(text, arguments) if arguments else self._cursor.execute(
            _bare(text, self.idiom.style)
        )
        return self._cursor

    def _cause(self, error: Exception) -> Exception | None:
        text = str(error)
        clean = text == self.idiom.words(error) and not any(secret in text for secret in self._secrets)
        return error if clean else None


class Closable(Protocol):
    """A session, or a connection."""

    def close(self) -> object: ...  # noqa: D102 - as it says


@contextmanager
def closing_at_errors(opened: Closable) -> Iterator[None]:
    """Closes a session or a connection if something is raised within, and passes the error on."""
    try:
        yield
    except BaseException:
        opened.close()
        raise


def translated(
    error: Exception, idiom: Idiom, doing: str, address: str, secrets: Sequence[str] = ()
) -> DriverError:
    """Makes an error of the driver into one that says what was being done, without secrets."""
    text = "; ".join(line.strip() for line in idiom.words(error).splitlines() if line.strip())
    for secret in secrets:
        text = text.replace(secret, "***")
    cure = idiom.cure(error)
    failed = f"cannot {doing} in {address}: {text or type(error).__name__}"
    message = f"{failed}; {cure}" if cure else failed
    error_kind = idiom.error_kind(error)
    if error_kind is ErrorKind.ACCESS_DENIED:
        return AccessDenied(message, lacks=failed)
    kinds: dict[ErrorKind, Callable[..., DriverError]] = {
        ErrorKind.NO_TABLE: TableMissing,
        ErrorKind.EXISTS: AlreadyExists,
        ErrorKind.FULL: ServerFull,
        ErrorKind.ROLLED_BACK: RolledBack,
        ErrorKind.LOCK_TIMEOUT: LockTimeout,
    }
    lasting = (ErrorKind.PERMANENT, ErrorKind.NO_TABLE, ErrorKind.EXISTS)
    return kinds.get(error_kind, DriverError)(message, retryable=error_kind not in lasting)


def _bare(text: str, style: Style) -> str:
    return text.replace("%%", "%") if style in (Style.FORMAT, Style.PYFORMAT) else text
