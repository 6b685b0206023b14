"""The dialect around a portable outbox: connections and tables."""
# ruff: noqa: PLC0415 - who looks at an outbox loads nothing of what changes one

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from outbox_api.base.errors import AccessDenied, ConfigError, DriverError
from outbox_api.base.finding import Finding
from outbox_api.intake.intake import Intake
from outbox_api.portable.creation import (
    create,
    due,
    first_note,
    migrate,
    require,
    require_tables,
    require_version,
)
from outbox_api.portable.idiom import Idiom
from outbox_api.portable.keeping import kept_statements
from outbox_api.portable.notes import read_schema
from outbox_api.portable.origin_columns import OriginColumns, find_index
from outbox_api.portable.outboxes import PortableMembers, TablePattern, find_outboxes
from outbox_api.portable.session import Session, closing_at_errors, translated
from outbox_api.portable.sources import EXTRAS
from outbox_api.portable.statements import Statements
from outbox_api.portable.table_idiom import TableName
from outbox_api.portable.tables import Tables, auxiliary_statements
from outbox_api.portable.view import PortableView
from outbox_api.seams.affinity import ColumnIs
from outbox_api.seams.dialect import Capability
from outbox_api.seams.lease import Lease
from outbox_api.seams.outbox_table import OutboxTable
from outbox_api.seams.schema import Schema
from outbox_api.support.file_text import files_of, login_refused
from outbox_api.support.full_server import pace_of

if TYPE_CHECKING:
    from outbox_api.portable.dead_letters import PortableDeadLetters
    from outbox_api.portable.erasing import PortableErasing
    from outbox_api.portable.glance import PortableGlance
    from outbox_api.portable.history import PortableHistory
    from outbox_api.portable.intake import PortableIntake
    from outbox_api.portable.intake_table import WaitingRows
    from outbox_api.portable.intakes import Connected, PortableIntakes
    from outbox_api.portable.journal import PortableJournal
    from outbox_api.portable.kept import PortableKept
    from outbox_api.portable.replaying import PortableReplays

View = TypeVar("View", bound=PortableView)

GLANCE_SECONDS = {"lock_timeout": 0.1, "statement_timeout": 5.0}
"""How long a statement about many outboxes may wait for one of them, and how long it may run."""

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


class PortableDialect(ABC):
    """One outbox in one database, to which a plugin knows how to connect. Holds options only; connects late.

    Only :meth:`create` and :meth:`migrate` create or alter anything. All that connects refuses tables that
    are missing, and tables that this version of outbox cannot work with (:mod:`outbox_api.seams.schema`).

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

    def connect(self, eligible: Sequence[ColumnIs] = ()) -> OutboxTable:
        """Connects to the outbox and checks that it can be harvested.

        Args:
            eligible: Conditions of which at least one must hold for a row to be marked; none means all.

        Raises:
            DriverError: Unreachable (retryable), or a missing table, column or permission (not retryable);
                the message says which, and what to do.
        """
        from outbox_api.portable.table import PortableTable

        return self._connected(PortableTable, self.session(), eligible)

    def watch(self) -> PortableView:
        """Connects to the outbox to look at it, in a session that cannot write.

        Asks for the right to SELECT on the outbox, its fence and its dead letters, and works on a standby.

        Raises:
            DriverError: As for :meth:`connect`.
        """
        return self._connected(PortableView, self.session(watches=True), ())

    def dead_letters(self, *, read_only: bool = False) -> PortableDeadLetters:
        """Connects to the dead letters of the outbox, for an operator.

        Args:
            read_only: Whether only to look, see :meth:`watch`: all but ``find`` and ``waiting`` is refused.

        Raises:
            DriverError: As for :meth:`connect`.
        """
        from outbox_api.portable.dead_letters import PortableDeadLetters

        session, options = self.session(watches=read_only), self.options
        return PortableDeadLetters(session, self._required(session), binary=options.binary)

    def kept(self, *, read_only: bool = False) -> PortableKept:
        """Connects to the kept records of the outbox, for an operator.

        Args:
            read_only: Whether only to look, see :meth:`watch`.

        Raises:
            DriverError: As for :meth:`connect`; or there is no table of kept records.
        """
        from outbox_api.portable.kept import PortableKept

        session = self.kept_session(read_only=read_only)
        return PortableKept(session, self._required(session, "kept"))

    def kept_session(self, *, read_only: bool = False) -> Session:
        """Connects as :meth:`session`, to look for kept records by their positions, which may take long."""
        return self.patient().session(watches=read_only)

    def replays(self, *, read_only: bool = False) -> PortableReplays:
        """Connects to the replays of kept records, for an operator.

        Asks for the rights to SELECT on the kept records, to INSERT into the outbox, to UPDATE the fence and
        its notes, which it locks, and to write the journal.

        Args:
            read_only: Whether only to look, see :meth:`watch`: all but ``find`` and ``waiting`` is refused.

        Raises:
            DriverError: As for :meth:`kept`.
        """
        from outbox_api.portable.replaying import PortableReplays

        kept = self.kept(read_only=read_only)
        with closing_at_errors(kept):
            return PortableReplays(kept, self.names(kept.session))

    def erasing(self) -> PortableErasing:
        """Connects to erase what is left of a key, for an operator.

        Asks for the rights that a journal needs, and to DELETE from dead letters and kept records.

        Raises:
            DriverError: As for :meth:`journal`.
        """
        from outbox_api.portable.erasing import PortableErasing

        session = self.kept_session()
        return PortableErasing(session, self._required(session, "journal"))

    def journal(self, *, read_only: bool = False) -> PortableJournal:
        """Connects to the journal of the outbox.

        Asks for the rights to SELECT, INSERT and UPDATE on the journal, beside those to look at the rest.

        Args:
            read_only: Whether only to read entries, see :meth:`watch`: SELECT does.

        Raises:
            DriverError: As for :meth:`connect`; tables of an earlier version have no journal yet, and
                ``outbox migrate`` adds it. Nothing but this method asks for the journal's table.
        """
        from outbox_api.portable.journal import PortableJournal

        session = self.session(watches=read_only)
        return PortableJournal(session, self._required(session, "journal"))

    def lease(self) -> Lease:
        """Connects to the outbox's lease, for an elector that needs nothing but the database.

        Raises:
            DriverError: As for :meth:`connect`.
        """
        from outbox_api.portable.lease import PortableLease

        session = self.session()
        return PortableLease(session, Statements(self.idiom, self._required(session, "lease")))

    def members(self) -> PortableMembers:
        """Connects to the list of the harvesters that are alive, which is kept beside the outbox's fence.

        Raises:
            DriverError: As for :meth:`connect`.
        """
        session = self.session()
        return PortableMembers(session, Statements(self.idiom, self._required(session, "members")))

    def history(self, *, read_only: bool = False) -> PortableHistory:
        """Connects to what was seen of the outbox in each minute, which is kept beside its fence.

        Args:
            read_only: Whether only to look, see :meth:`watch`: SELECT does.

        Raises:
            DriverError: As for :meth:`connect`. Nothing but this method asks for the table.
        """
        from outbox_api.portable.history import PortableHistory

        session = self.session(watches=read_only)
        return PortableHistory(session, Statements(self.idiom, self._required(session, "history")))

    def glance(self) -> PortableGlance:
        """Connects to look at this outbox and others of its database, without a look at their tables.

        Raises:
            DriverError: Unreachable, or not permitted.
        """
        from outbox_api.portable.glance import PortableGlance

        short = {name: limit for name, limit in GLANCE_SECONDS.items() if hasattr(self.options, name)}
        return PortableGlance(type(self)(replace(self.options, **short)).session())

    def find_outboxes(self, pattern: str) -> Sequence[str]:
        """Returns the names of the outboxes that a pattern matches: one configuration for many tenants.

        The outbox that the options name need not exist. Connects for this call only.

        Args:
            pattern: ``schema.table``, or ``table`` for those in the connection's own schema, with ``*`` for
                any characters in either part: ``tenant_*.outbox``. Quoted as the option ``table`` is.

        Returns:
            Names as the option ``table`` takes them, sorted, with a schema if the pattern has one: of
            ordinary and partitioned tables that have the columns of an outbox, at least topic, key and
            leader id. A dialect whose names have no case may ignore it.

        Raises:
            ConfigError: The pattern is malformed.
            DriverError: Unreachable (retryable), or not permitted.
        """
        wanted: TablePattern = self.options.table_pattern(pattern)
        query = find_outboxes(self.idiom, everywhere=bool(wanted.schema))
        with closing(self.session(watches=True)) as session:
            rows = session.query("look for outboxes", query)
        read = self.idiom.read_text
        return wanted.names((read(schema) or "", read(table) or "") for schema, table in rows)

    def stash_connection(self) -> Any:
        """Opens a DB-API connection to the outbox's database, as an application would open it to stash.

        The caller commits and closes. For ``outbox pump``.

        Raises:
            DriverError: Unreachable, or not permitted.
        """
        with _reading_files(), self._connecting():
            return self.open_as_application()

    def ddl(self) -> Sequence[str]:
        """Returns the statements that create what does not exist of an outbox; connects to nothing."""
        tables = self.tables(self.options.tables)
        return [*(each for statements in tables.values() for each in statements), first_note(self)]

    def create(self) -> Sequence[str]:
        """Creates what does not exist of the outbox, its fence, its dead letters and all beside them.

        Changes no existing table, except that it adds to the outbox what an origin needs. Notes the version
        of the tables if it created the fence. Idempotent.

        Returns:
            The names of the tables created.

        Raises:
            DriverError: Unreachable, or not permitted; the message then contains the DDL for somebody who is.
        """
        with closing(self.session()) as session:
            return create(self, session)

    def schema(self) -> Schema | None:
        """Returns the version that is noted for the existing tables; ``None`` if none is. Reads only.

        Raises:
            DriverError: Unreachable, or there are no tables.
        """
        with closing(self.session(watches=True)) as session:
            names = self.names(session)
            require_tables(self, session, names)
            return read_schema(session, names)

    def migrations(self) -> Sequence[str]:
        """Returns the statements that bring existing tables up to ``SCHEMA``; none if they are. Reads only.

        They only add, so that harvesters of the earlier version continue. If records are to be kept, the
        table for them is created. All else that does not exist is left to :meth:`create`.

        Raises:
            DriverError: Unreachable, there are no tables, or they are of a later version.
        """
        with closing(self.session(watches=True)) as session:
            self._require_known_tables(session)
            return [statement for together in due(self, session) for statement in together]

    def migrate(self) -> Sequence[str]:
        """Executes :meth:`migrations`, while harvesters run; idempotent, and several processes may at once.

        No statement waits long for a lock that would hold up the harvesters behind it.

        Returns:
            What it executed, in order.

        Raises:
            DriverError: A lock was not to be had (retryable), or not permitted; the message then contains the
                statements for somebody who is.
        """
        with closing(self.session()) as session:
            self._require_known_tables(session)
            return migrate(self, session)

    def _require_known_tables(self, session: Session) -> None:
        names = self.names(session)
        require_tables(self, session, names)
        require_version(self, session, names)

    def free_connections(self) -> int | None:
        """Returns how many more connections this user may open now; ``None`` if that is not known.

        Raises:
            DriverError: Unreachable, or not permitted.
        """
        return None

    def check(self) -> Sequence[Finding]:
        """Looks for everything that could be wrong on the side of the database.

        Never raises, creates nothing, and does with the right to SELECT.
        """
        from outbox_api.portable.check import check

        return check(self)

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

    def _required(self, session: Session, more: str = "") -> Tables:
        """Returns the tables' names, if they are as they must be; closes the session if they are not."""
        with closing_at_errors(session):
            return require(self, session, more=more).tables

    def _connected(self, kind: type[View], session: Session, eligible: Sequence[ColumnIs]) -> View:
        options = self.options
        keep = None if kind is PortableView else options.keep
        with closing_at_errors(session):
            tables, columns = require(self, session, eligible, "kept" if keep else "")
            indexes = self._indexes(session, eligible)
        return kind(
            session,
            tables,
            eligible,
            origin=options.origin,
            indexes=indexes,
            intakes=self._waiting_rows(session) if options.intakes else (),
            extras=[name for name in EXTRAS if name in columns],
            keep=keep,
        )

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

    def intakes(self) -> PortableIntakes:
        """Returns what moves rows of other tables into the outbox: those of the option ``intake``.

        Connects when it is used. Asked for only if there is such an option, and it names a table.
        """
        from outbox_api.portable.intakes import PortableIntakes

        return PortableIntakes(self.connect_intakes, self.options.intakes)

    def connect_intakes(self) -> Connected:
        """Connects to move rows of other tables into the outbox, and looks at the outbox."""
        from outbox_api.portable.intakes import Connected

        session = self.patient().session()
        with closing_at_errors(session):
            tables, columns = require(self, session)
        sql, take = Statements(self.idiom, tables), partial(self.intake, session, extras=columns)
        return Connected(session, sql, sql.name, take)

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

    def _waiting_rows(self, session: Session) -> Sequence[WaitingRows]:
        from outbox_api.portable.intake_table import WaitingRows

        return [WaitingRows(session, intake) for intake in self.options.intakes]

    def _indexes(self, session: Session, eligible: Sequence[ColumnIs]) -> Mapping[str, str]:
        """Returns column → the name of an index of the column and ``id``, for columns that are compared."""
        origin = self.options.origin
        columns = {each.column for each in eligible}
        columns |= {origin.column} if origin else set()
        found = {column: find_index(session, self.options.outbox, (column, "id")) for column in columns}
        return {column: name for column, name in found.items() if name}


@contextmanager
def _reading_files() -> Iterator[None]:
    try:
        yield
    except ConfigError as error:  # a file, which was right at the start, and may be again
        raise DriverError(f"cannot connect: {error}", retryable=True) from None
