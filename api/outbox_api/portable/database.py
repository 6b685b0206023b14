"""The database under a portable outbox, as a plugin describes it: connections, tables, what only it has."""
# ruff: noqa: PLC0415 - who looks at an outbox loads nothing of what changes one

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from outbox_api.base.errors import AccessDenied, ConfigError, DriverError
from outbox_api.base.finding import Finding
from outbox_api.intake.intake import Intake
from outbox_api.portable.idiom import Idiom
from outbox_api.portable.keeping import kept_statements
from outbox_api.portable.origin_columns import OriginColumns
from outbox_api.portable.session import Session, closing_at_errors, translated
from outbox_api.portable.table_idiom import TableName
from outbox_api.portable.tables import Tables, auxiliary_statements
from outbox_api.seams.dialect import Capability
from outbox_api.support.file_text import files_of, login_refused
from outbox_api.support.full_server import pace_of

if TYPE_CHECKING:
    from outbox_api.portable.intake import PortableIntake

SCAN_PATIENCE = 10
"""How many times as long as others a statement may run that lists the rows of another table."""

STATEMENT_SECONDS = 30.0
"""How long a statement is thought to run, where no option ``statement_timeout`` says how long it may."""

MOST_STATEMENTS = 10
"""How many statements of the longest duration a call of a table may take."""

CAPABILITIES = frozenset({Capability.BYTES_VALUES, Capability.INTAKE})
"""What every portable dialect can do beyond the contract."""

SERVER_CAPABILITIES = CAPABILITIES | {Capability.CONCURRENT_DDL, Capability.CONCURRENT_WRITERS}
"""What a dialect can do whose transactions lock rows, not the whole database."""


class PortableDatabase(ABC):
    """The database of one outbox: how to connect, and of which tables the outbox is made.

    What a plugin overrides is here; what it gets for that is :class:`outbox_api.PortableDialect`. Holds
    options only; connects late.

    Args:
        options: The plugin's options.

    Attributes:
        idiom: How the database writes SQL.
        capabilities: What it can do beyond the contract.
        session_type: How statements are sent.
        intake_type: Takes in the rows of a table of another layout; ``None`` for ``PortableIntake``.
    """

    idiom: ClassVar[Idiom]
    capabilities: ClassVar[frozenset[Capability]] = CAPABILITIES
    session_type: ClassVar[type[Session]] = Session
    intake_type: ClassVar[type[PortableIntake] | None] = None

    def __init__(self, options: Any) -> None:
        self.options = options

    @property
    @abstractmethod
    def address(self) -> str:
        """Where the database is, in words, without secrets."""

    @property
    def dataset(self) -> tuple[str, str]:
        """The namespace and the name of the outbox in catalogs of data, without secrets.

        As OpenLineage names datasets: ``postgres://db:5432``, and ``shop.public.outbox``.
        """
        return self.address, ".".join(filter(None, self.options.outbox))

    @property
    def secrets(self) -> Sequence[str]:
        """What must not appear in an error."""
        return ()

    @abstractmethod
    def open(self) -> Any:
        """Opens a DB-API connection for the harvester: no autocommit, time-outs, isolation READ COMMITTED.

        Purges must be durable when a commit returns. Imports the driver, whose errors pass through.
        """

    def open_to_watch(self) -> Any:
        """Opens a connection for somebody who only looks, perhaps without a right to write, or on a standby.

        A database that can refuse the changes of a whole connection does so; for one that can refuse those of
        a transaction there is ``Idiom.begin_watching``.
        """
        return self.open()

    @abstractmethod
    def open_as_application(self) -> Any:
        """Opens a connection as an application would, with transactions on; its errors pass through."""

    @abstractmethod
    def outbox_statements(self, table: str) -> Sequence[str]:
        """Returns the statements that create the outbox; its columns are those of ``OUTBOX_COLUMNS``.

        Args:
            table: Its name, quoted.
        """

    def longest_call(self) -> float:
        """Returns how many seconds a call of a table may take, with its connect.

        Of one that takes longer nothing more is expected: another process may lead. A client whose calls all
        end by a time-out of its own needs no other figure than this one.
        """
        statement = getattr(self.options, "statement_timeout", 0.0) or STATEMENT_SECONDS
        # One statement of a call may wait for a lock; the connection then waits for no other for a while.
        return max(MOST_STATEMENTS * statement, statement + getattr(self.options, "lock_timeout", 0.0))

    def names(self, session: Session) -> Tables:
        """Returns the tables' names; that of the outbox as the database knows it, however users spell it.

        Two processes that name one outbox differently must share one fence.
        """
        tables: Tables = self.options.tables
        idiom = self.idiom
        rows: Sequence[Sequence[Any]] = ()
        if idiom.spelling:
            rows = session.query("ask for the outbox's name", idiom.spelling, **idiom.place(tables.outbox))
        return tables._replace(outbox=TableName(*rows[0])) if rows and rows[0][1] else tables

    def tables(self, names: Tables) -> Mapping[TableName, Sequence[str]]:
        """Returns the statements that create the tables, by table, in the order of ``Tables``."""
        from outbox_api.portable.intake_table import extra_columns

        options, outbox = self.options, self.idiom.quote_table(names.outbox)
        if options.by_day and not self.idiom.partitions:
            raise ConfigError(
                "only PostgreSQL, MySQL and MariaDB can hold an outbox in a partition for each day"
            )
        statements = [*self.outbox_statements(outbox)]
        if any(intake.partition or intake.timestamp for intake in options.intakes):
            statements += extra_columns(outbox)
        if origin := self.origin_columns():
            statements += origin.created()
        beside = auxiliary_statements(self.idiom, names)
        return {names.outbox: statements, **beside, **self.kept_tables(names)}

    def kept_tables(self, names: Tables) -> Mapping[TableName, Sequence[str]]:
        """Returns the statements that create the table of kept records, if there is to be one."""
        options = self.options
        if not options.keep:
            return {}
        return {names.kept: kept_statements(self.idiom, names, binary=options.binary)}

    def additions(self, session: Session) -> Sequence[Sequence[str]]:
        """Returns what ``outbox init`` adds to tables that exist, by transaction: what an origin needs."""
        origin = self.origin_columns()
        return origin.missing(session) if origin else []

    def alterations(self, session: Session) -> Sequence[str]:  # noqa: ARG002 - for later versions
        """Returns the statements that bring existing tables of an earlier version up to ``SCHEMA``.

        They only add: harvesters of the earlier version continue. There is no earlier version yet.
        """
        return []

    def origin_columns(self) -> OriginColumns | None:
        """Returns what makes the columns by which rows tell where they were written, if they are to."""
        options = self.options
        return OriginColumns(self.idiom, options.outbox, options.origin) if options.origin else None

    def findings(self, session: Session) -> Iterator[Finding]:  # noqa: ARG002 - for subclasses
        """Checks what only this database has: version, isolation, durability, …"""
        yield from ()

    def stash_connection(self) -> Any:
        """Opens a DB-API connection to the outbox's database, as an application would open it to stash.

        The caller commits and closes. For ``outbox pump``.

        Raises:
            DriverError: Unreachable, or not permitted.
        """
        with _reading_files(), self._connecting():
            return self.open_as_application()

    def free_connections(self) -> int | None:
        """Returns how many more connections this user may open now; ``None`` if that is not known.

        Raises:
            DriverError: Unreachable, or not permitted.
        """
        return None

    def session(self, *, watches: bool = False) -> Session:
        """Connects, without a look at the tables.

        Args:
            watches: Whether the session only looks.

        Raises:
            DriverError: Unreachable (retryable), or not permitted.
        """
        return self._session(self.open_to_watch if watches else self.open, watches=watches)

    def _session(self, open_connection: Callable[[], Any], *, watches: bool = False) -> Session:
        with _reading_files(), pace_of(self.address).connecting(), self._connecting():
            connection = open_connection()
            with closing_at_errors(connection):
                return self._over(connection, watches=watches)

    def _over(self, connection: Any, *, watches: bool) -> Session:
        return self.session_type(connection, self.idiom, self.address, self.secrets, watches=watches)

    @contextmanager
    def _connecting(self) -> Iterator[None]:
        secrets = self.secrets
        try:
            yield
        except self.idiom.errors as error:
            failure = translated(error, self.idiom, "connect", self.address, secrets)
            if isinstance(failure, AccessDenied):
                credentials = (getattr(self.options, name, None) for name in ("data_source", "password"))
                failure = login_refused(str(failure), files_of(*credentials))
            raise failure from None

    def patient(self) -> Self:
        """Returns the dialect with connections whose statements may run for long, as a scan does."""
        options = self.options
        if hasattr(options, "statement_timeout"):
            options = replace(options, statement_timeout=SCAN_PATIENCE * options.statement_timeout)
        return type(self)(options)

    def intake(self, session: Session, intake: Intake, *, extras: Collection[str]) -> PortableIntake:
        """Returns what takes in rows of a table; part of no transaction.

        Raises:
            DriverError: They cannot be taken in.
        """
        from outbox_api.portable.intake import PortableIntake

        options = self.options
        kind = self.intake_type or PortableIntake
        return kind(session, intake, options.outbox, binary=options.binary, extras=extras)


@contextmanager
def _reading_files() -> Iterator[None]:
    try:
        yield
    except ConfigError as error:  # a file, which was right at the start, and may be again
        raise DriverError(f"cannot connect: {error}", retryable=True) from None
