"""The dialect around a portable outbox: connections and tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar

from outbox_sdk.affinity import ColumnIs, Condition, Origin
from outbox_sdk.dialect import Capability
from outbox_sdk.errors import AccessDenied, DriverError
from outbox_sdk.finding import Finding
from outbox_sdk.portable.check import check, missing_columns
from outbox_sdk.portable.columns import DEAD_LETTER_COLUMNS, EXTRAS, FENCE_COLUMNS, OUTBOX_COLUMNS
from outbox_sdk.portable.dead_letters import PortableDeadLetters
from outbox_sdk.portable.idiom import Idiom
from outbox_sdk.portable.intake import PortableIntake, extra_columns
from outbox_sdk.portable.lease import PortableLease
from outbox_sdk.portable.members import PortableMembers
from outbox_sdk.portable.names import TableName
from outbox_sdk.portable.origin_columns import OriginColumns, find_index
from outbox_sdk.portable.outboxes import TablePattern, find_outboxes
from outbox_sdk.portable.session import Session, translated
from outbox_sdk.portable.statements import Statements
from outbox_sdk.portable.table import PortableTable
from outbox_sdk.portable.upgrade import additions, upgrade

CAPABILITIES = frozenset({Capability.BYTES_VALUES, Capability.INTAKE})
"""What every portable dialect can do beyond the contract."""

SERVER_CAPABILITIES = CAPABILITIES | {Capability.CONCURRENT_DDL, Capability.CONCURRENT_WRITERS}
"""What a dialect can do whose transactions lock rows, not the whole database."""


class PortableDialect(ABC):
    """An outbox in a database that a plugin knows how to connect to.

    Args:
        options: The plugin's options.

    Attributes:
        idiom: How the database writes SQL.
        capabilities: What it can do beyond the contract.
        session_type: How statements are sent.
        intake_type: Takes in the rows of a table of another layout.
    """

    idiom: ClassVar[Idiom]
    capabilities: ClassVar[frozenset[Capability]] = CAPABILITIES
    session_type: ClassVar[type[Session]] = Session
    intake_type: ClassVar[type[PortableIntake]] = PortableIntake

    def __init__(self, options: Any) -> None:
        self.options = options

    @property
    @abstractmethod
    def address(self) -> str:
        """Where the database is, in words, without secrets."""

    @property
    def secrets(self) -> Sequence[str]:
        """What must not appear in an error."""
        return ()

    @abstractmethod
    def open(self) -> Any:
        """Opens a DB-API connection for the harvester: no autocommit, time-outs, isolation READ COMMITTED.

        Purges must be durable when a commit returns. Imports the driver, whose errors pass through.
        """

    @abstractmethod
    def open_as_application(self) -> Any:
        """Opens a connection as an application would, with transactions on; its errors pass through."""

    @abstractmethod
    def create_statements(self) -> Mapping[TableName, Sequence[str]]:
        """Returns the statements that create outbox, fence and dead letters, in this order, by table.

        The columns are those of ``OUTBOX_COLUMNS``, ``FENCE_COLUMNS`` and ``DEAD_LETTER_COLUMNS``.
        """

    def canonical_name(self, session: Session) -> TableName:  # noqa: ARG002 - for subclasses
        """Returns the outbox's name as the database knows it, however the configuration spells it.

        Two processes that name one table differently must share one fence.
        """
        outbox: TableName = self.options.outbox
        return outbox

    def upgrades(self, session: Session) -> Sequence[str]:
        """Returns the statements that add missing columns to tables of an earlier version."""
        fence = self.options.fence
        found = session.columns(self.idiom.quote_table(fence))
        return [] if found is None else additions(self.idiom, fence, found)

    def origin_upgrades(self, session: Session) -> Sequence[Sequence[str]]:
        """Returns the statements that let the rows of an existing outbox tell where they were written.

        Those of one element belong together. None if the options name no origin, or nothing is missing.
        """
        columns = self.origin_columns()
        return columns.missing(session) if columns else []

    def origin_columns(self) -> OriginColumns | None:
        """Returns what makes the columns by which rows tell where they were written, if they are to."""
        options = self.options
        return OriginColumns(self.idiom, options.outbox, options.origin) if options.origin else None

    def findings(self, session: Session) -> Iterator[Finding]:  # noqa: ARG002 - for subclasses
        """Checks what only this database has: version, isolation, durability, …"""
        yield from ()

    def connect(self, eligible: Sequence[Condition] = ()) -> PortableTable:
        """Connects to the outbox, creates its fence and dead letters, and looks at all columns."""
        options = self.options
        session = self.session()
        try:
            extras = self._require(session, eligible)
            outbox = self.canonical_name(session)
            intake = self.intake(session, extras=extras) if options.intake else None
            indexes = self._indexes(session, eligible)
        except BaseException:
            session.close()
            raise
        tables = (outbox, options.fence, options.dead_letters)
        return PortableTable(
            session,
            *tables,
            eligible,
            origin=options.origin,
            indexes=indexes,
            intake=intake,
            extras=extras,
        )

    def dead_letters(self) -> PortableDeadLetters:
        """Connects to the dead letters of the outbox, for an operator."""
        (session, outbox), options = self._required(), self.options
        return PortableDeadLetters(
            session, outbox, options.fence, options.dead_letters, binary=options.binary
        )

    def lease(self) -> PortableLease:
        """Connects to the outbox's lease."""
        (session, outbox), options = self._required(), self.options
        sql = Statements(self.idiom, outbox, options.fence, options.dead_letters)
        return PortableLease(session, sql, str(outbox))

    def members(self) -> PortableMembers:
        """Connects to the list of members beside the outbox's fence."""
        (session, outbox), options = self._required(), self.options
        return PortableMembers(session, Statements(self.idiom, outbox, options.fence, options.dead_letters))

    def find_outboxes(self, pattern: str) -> Sequence[str]:
        """Returns the names of the outboxes in the database that match a pattern; ignores case."""
        wanted: TablePattern = self.options.table_pattern(pattern)
        session = self.session()
        try:
            query = find_outboxes(self.idiom, everywhere=bool(wanted.schema))
            rows = session.query("look for outboxes", query)
        finally:
            session.close()
        read = self.idiom.read_text
        return wanted.names((read(schema) or "", read(table) or "") for schema, table in rows)

    def stash_connection(self) -> Any:
        """Opens a connection with transactions on, as an application would."""
        with self._translated("connect"):
            return self.open_as_application()

    def ddl(self) -> Sequence[str]:
        """Returns the statements that create outbox, fence and dead letters."""
        return [statement for table in self.create_statements() for statement in self._statements(table)]

    def create(self) -> Sequence[str]:
        """Creates outbox, fence and dead letters where they do not exist."""
        session = self.session()
        try:
            made = [str(table) for table in self.create_statements() if self._make(session, table)]
            upgrade(session, partial(self._upgrades, session))
            upgrade(session, partial(self.origin_upgrades, session))
            return made
        finally:
            session.close()

    def check(self) -> Sequence[Finding]:
        """Looks at everything that could be wrong with the database side; never raises."""
        return check(self)

    def session(self) -> Session:
        """Connects, without a look at the tables.

        Raises:
            DriverError: Unreachable (retryable), or not permitted.
        """
        with self._translated("connect"):
            return self.session_type(self.open(), self.idiom, self.address, self.secrets)

    def _required(self) -> tuple[Session, TableName]:
        session = self.session()
        try:
            self._require(session, ())
            return session, self.canonical_name(session)
        except BaseException:
            session.close()
            raise

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        try:
            yield
        except self.idiom.errors as error:
            raise translated(error, self.idiom, doing, self.address, self.secrets) from None

    def intake(self, session: Session, *, extras: bool) -> PortableIntake:
        """Returns what takes in rows of the table that the options name; part of no transaction.

        Raises:
            DriverError: They cannot be taken in.
        """
        options = self.options
        return self.intake_type(session, options.intake, options.outbox, binary=options.binary, extras=extras)

    def _statements(self, table: TableName) -> Sequence[str]:
        options = self.options
        wanted = options.intake and (options.intake.partition or options.intake.timestamp)
        added = extra_columns(self.idiom.quote_table(table)) if wanted else []
        if origin := self.origin_columns():
            added += origin.created()
        return [*self.create_statements()[table], *(added if table == options.outbox else [])]

    def _require(self, session: Session, eligible: Sequence[Condition]) -> bool:
        """Checks that the outbox can be harvested; returns whether it has the columns ``EXTRAS``."""
        outbox, *auxiliary = self.create_statements()
        columns = session.columns(self.idiom.quote_table(outbox))
        if columns is None:
            raise DriverError(
                f"there is no table '{outbox}' in {self.address}; run 'outbox init', or correct outboxTable",
                retryable=False,
            )
        faults = missing_columns(outbox, OUTBOX_COLUMNS, columns)
        if absent := missing_columns(outbox, _asked(eligible, self.options.origin), columns):
            faults += [f"{absent[0]}; run 'outbox init', which adds what the affinity needs"]
        if not faults:
            for table in auxiliary:
                self._make(session, table)
            upgrade(session, partial(self._upgrades, session))
            for table, wanted in zip(auxiliary, (FENCE_COLUMNS, DEAD_LETTER_COLUMNS), strict=True):
                found = session.columns(self.idiom.quote_table(table)) or ()
                faults += missing_columns(table, wanted, found)
        if faults:
            message = f"outbox {outbox} in {self.address} cannot be harvested: {'; '.join(faults)}"
            raise DriverError(message, retryable=False)
        return set(EXTRAS) <= set(columns)

    def _upgrades(self, session: Session) -> Sequence[Sequence[str]]:
        return [[statement] for statement in self.upgrades(session)]

    def _indexes(self, session: Session, eligible: Sequence[Condition]) -> Mapping[str, str]:
        """Returns column → the name of an index of the column and ``id``, for columns that are compared."""
        origin = self.options.origin
        columns = {each.column for each in eligible if isinstance(each, ColumnIs)}
        columns |= {origin.column} if origin else set()
        found = {column: find_index(session, self.options.outbox, column) for column in columns}
        return {column: name for column, name in found.items() if name}

    def _make(self, session: Session, table: TableName) -> bool:
        """Creates a table that does not exist; returns whether it did."""
        name = self.idiom.quote_table(table)
        if session.columns(name) is not None:
            return False
        statements = self._statements(table)
        try:
            with session.transaction(f"create table {table}"):
                for statement in statements:
                    session.execute_ddl(statement)
        except AccessDenied as error:
            ddl = "; ".join(statements)
            raise AccessDenied(f"{error}; let somebody who may run this: {ddl}") from error
        except DriverError:
            if session.columns(name) is not None:
                return False  # another process was first
            raise
        return True


def _asked(eligible: Sequence[Condition], origin: Origin | None) -> set[str]:
    """Returns the columns that an affinity needs beside those of every outbox, in lower case."""
    compared = [each for each in eligible if isinstance(each, ColumnIs)]
    aged = {each.since.lower() for each in compared if each.older_than > 0}
    telling = {name.lower() for name in (origin.column, origin.arrival) if name} if origin else set()
    return telling | {each.column.lower() for each in compared} | aged - set(OUTBOX_COLUMNS)
