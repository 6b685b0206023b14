"""Writes records into the outbox, inside the caller's own transaction.

A stasher never opens, commits or rolls back anything: the record is committed with the caller's other
changes, or not at all. It works on what the application has: a DB-API connection or cursor, or a SQLAlchemy
connection or session; :class:`AsyncStasher` on their asynchronous forms. Neither a database driver nor
SQLAlchemy is imported here.

In a span of OpenTelemetry a record gets its context as headers (:mod:`outbox_api.application.tracing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from outbox_api.application.registry import Seam, find
from outbox_api.application.target import AsyncTarget, Target, find_async_target, find_target
from outbox_api.application.tracing import trace_headers, with_trace
from outbox_api.base.bounds import MAX_KEY_BYTES, NO_TOPIC, Bounds, is_topic, too_long
from outbox_api.base.errors import ConfigError, PluginError, RecordError
from outbox_api.base.record import Header, Record
from outbox_api.seams.affinity import MAX_CLUSTER
from outbox_api.support.statement import Rename, Statement, Style, Values, statement_of


class Stasher:
    """Writes records into one outbox table. Holds no connection, so one serves the whole application.

    Args:
        table: The outbox table, optionally with its schema.
        dialect: The driver name of the database's dialect, whose plugin must be installed.
        bytes_values: Whether the table's value column holds bytes; text is then written as UTF-8.
        cluster: The number of the cluster that the records are of; without, the database's default
            fills the column, if there is one.
        cluster_column: The column with the cluster's number.
        bounds: What the harvester delivers; any other record is refused, in the words of its dead letter.

    Raises:
        PluginError: The dialect is not installed.
        ConfigError: ``table`` is not the name of a table, or ``cluster`` not the number of a cluster.
    """

    def __init__(
        self,
        table: str = "outbox",
        dialect: str = "postgres",
        *,
        bytes_values: bool = False,
        cluster: int | None = None,
        cluster_column: str = "cluster_id",
        bounds: Bounds | None = None,
    ) -> None:
        constants = _constants(cluster, cluster_column)
        self._insertion = Insertion(table, dialect, constants, bytes_values=bytes_values, bounds=bounds)

    def stash(self, connection: Any, record: Record) -> None:
        """Writes one record in the transaction that ``connection`` is in.

        If OpenTelemetry has a current span, the record gets its ``traceparent`` and ``tracestate`` as
        headers. A record that has a header of either name, in any case, stays as it is.

        Args:
            connection: A DB-API connection or cursor, or a SQLAlchemy ``Connection`` or ``Session``.
            record: What to publish once the transaction is committed.

        Raises:
            RecordError: The record cannot be written; the transaction is as it was.
            TypeError: ``connection`` is none of the above, or asynchronous.
            ValueError: ``connection`` commits every statement by itself, or is a session that leads to
                several databases, so nothing would be atomic.
        """
        self.stash_many(connection, (record,))

    def stash_many(self, connection: Any, records: Iterable[Record]) -> None:
        """Writes records in the order given, in as few round trips as the driver can; see :meth:`stash`."""
        self.prepare(connection).stash_many(records)

    def prepare(self, connection: Any) -> PreparedStash:
        """Returns a stasher for the transaction that ``connection`` is in, which repeats no set-up.

        It prepares nothing on the server: behind a pooler, the next transaction may be on another's session.
        """
        return PreparedStash(self._insertion, find_target(connection, self._insertion.statement))


class PreparedStash:
    """A stasher bound to one transaction; made by :meth:`Stasher.prepare`."""

    def __init__(self, insertion: Insertion, target: Target) -> None:
        self._insertion = insertion
        self._target = target

    def stash(self, record: Record) -> None:
        """Writes one record; see :meth:`Stasher.stash`."""
        self.stash_many((record,))

    def stash_many(self, records: Iterable[Record]) -> None:
        """Writes records in the order given; see :meth:`Stasher.stash_many`."""
        if rows := self._insertion.rows(records):
            self._target.execute(rows)


class AsyncStasher:
    """Writes records over asynchronous connections; the verbs and errors are those of :class:`Stasher`.

    Takes a psycopg ``AsyncConnection`` or ``AsyncCursor``, or a SQLAlchemy ``AsyncConnection`` or
    ``AsyncSession``.

    Args:
        table: The outbox table, optionally with its schema.
        dialect: The driver name of the database's dialect, whose plugin must be installed.
        bytes_values: Whether the table's value column holds bytes; text is then written as UTF-8.
        cluster: As for :class:`Stasher`.
        cluster_column: As for :class:`Stasher`.
        bounds: As for :class:`Stasher`.
    """

    def __init__(
        self,
        table: str = "outbox",
        dialect: str = "postgres",
        *,
        bytes_values: bool = False,
        cluster: int | None = None,
        cluster_column: str = "cluster_id",
        bounds: Bounds | None = None,
    ) -> None:
        constants = _constants(cluster, cluster_column)
        self._insertion = Insertion(table, dialect, constants, bytes_values=bytes_values, bounds=bounds)

    async def stash(self, connection: Any, record: Record) -> None:
        """Writes one record in the transaction that ``connection`` is in; see :meth:`Stasher.stash`."""
        await self.stash_many(connection, (record,))

    async def stash_many(self, connection: Any, records: Iterable[Record]) -> None:
        """Writes records in the order given; see :meth:`Stasher.stash_many`."""
        await self.prepare(connection).stash_many(records)

    def prepare(self, connection: Any) -> AsyncPreparedStash:
        """Returns a stasher for the transaction that ``connection`` is in; see :meth:`Stasher.prepare`."""
        return AsyncPreparedStash(self._insertion, find_async_target(connection, self._insertion.statement))


class AsyncPreparedStash:
    """An asynchronous stasher bound to one transaction; made by :meth:`AsyncStasher.prepare`."""

    def __init__(self, insertion: Insertion, target: AsyncTarget) -> None:
        self._insertion = insertion
        self._target = target

    async def stash(self, record: Record) -> None:
        """Writes one record; see :meth:`Stasher.stash`."""
        await self.stash_many((record,))

    async def stash_many(self, records: Iterable[Record]) -> None:
        """Writes records in the order given; see :meth:`Stasher.stash_many`."""
        if rows := self._insertion.rows(records):
            await self._target.execute(rows)


class Insertion:
    """What the stashers share: the insert in each style, and records made into its parameters."""

    def __init__(
        self,
        table: str,
        dialect: str,
        constants: Mapping[str, object],
        *,
        bytes_values: bool,
        bounds: Bounds | None = None,
    ) -> None:
        driver = find(Seam.DIALECT, dialect)
        if driver.insert is None:
            raise PluginError(f"the dialect '{dialect}' offers no way to stash")
        self._insert = driver.insert(table, constants)
        self._insert_into, self._constants = driver.insert, constants
        self._table = table
        self._bytes_values = bytes_values
        self._bounds = bounds

    def statement(self, style: Style, rename: Rename = str) -> Statement:
        """Returns the insert in a style, for the table as it is called on a connection."""
        table = rename(self._table)
        insert = self._insert if table == self._table else self._insert_into(table, self._constants)
        return statement_of(insert.sql, style)

    def rows(self, records: Iterable[Record]) -> list[Values]:
        """Returns the parameters of each record.

        Raises:
            RecordError: One of them cannot be written.
        """
        trace = trace_headers()
        return [self._row(record, trace) for record in records]

    def _row(self, record: Record, trace: tuple[Header, ...]) -> Values:
        problem = _problem(record)
        if not problem and isinstance(record.value, bytes) and not self._bytes_values:
            problem = (
                "the value is bytes, and the outbox holds text: decode it, or keep bytes in a table whose "
                "value column holds them and make the stasher with bytes_values=True"
            )
        if problem:
            raise RecordError(f"{problem} ({_name(record)})")
        try:
            if isinstance(record.value, str) and self._bytes_values:
                record = replace(record, value=record.value.encode())
            return self._bind(record, trace)
        except ValueError as error:
            raise RecordError(f"{error} ({_name(record)})") from error

    def _bind(self, record: Record, trace: tuple[Header, ...]) -> Values:
        traced = with_trace(record, trace)
        if traced is record:
            return self._bound(record)
        try:
            return self._bound(traced)
        except ValueError:
            return self._bound(record)  # a trace is not worth a transaction: it may just not fit

    def _bound(self, record: Record) -> Values:
        if self._bounds and (refusal := self._bounds.refusal(record)):
            raise ValueError(refusal)
        return self._insert.bind(record)


def _constants(cluster: int | None, column: str) -> Mapping[str, object]:
    """Returns the values of columns that are the same in each row."""
    if cluster is None:
        return {}
    if not 1 <= cluster <= MAX_CLUSTER:
        raise ConfigError(f"cluster is {cluster!r}; it is a number from 1 to {MAX_CLUSTER:,}")
    return {column: cluster}


def _name(record: object) -> str:
    # The value stays out of errors: it is the application's business, and may be large.
    return (
        f"topic {record.topic!r:.60}, key {record.key!r:.60}" if isinstance(record, Record) else _kind(record)
    )


def _problem(record: Any) -> str:
    """Says why no outbox can hold a record, or nothing; types are mere hints, so they are looked at."""
    if not isinstance(record, Record):
        return "what is stashed is a Record"
    topic, key, value, headers = _parts(record)
    if not isinstance(topic, str) or not is_topic(topic):
        return f"a record's topic is text: {NO_TOPIC}"
    if not isinstance(key, str):
        cure = "use '' for no key" if key is None else f"write key=str(…) for a {type(key).__name__}"
        return f"a record's key is text, possibly empty, never None: {cure}"
    if not isinstance(value, str | bytes | None):
        kind = type(value).__name__
        return (
            f"a record's value is text, bytes or None, not a {kind}: Record.of(topic, key, value) makes JSON"
        )
    if len(key) > MAX_KEY_BYTES // 4 and (long := too_long(0, len(key.encode(errors="replace")))):
        return long
    return problem_of_headers(headers)


def problem_of_headers(headers: Any) -> str:
    """Says why these are no headers of a record, or nothing."""
    if isinstance(headers, Mapping):
        return "a record's headers are pairs, as a name may occur twice: write tuple(headers.items())"
    if not isinstance(headers, tuple | list) or not all(map(_is_header, headers)):
        return "a record's headers are pairs of a name, which is text, and a value of text, bytes or None"
    return ""


def _parts(record: Any) -> tuple[Any, Any, Any, Any]:
    return record.topic, record.key, record.value, record.headers


def _is_header(header: Any) -> bool:
    match header:
        case (str(), str() | bytes() | None):
            return True
    return False


def _kind(thing: object) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"
