"""The dialect of a portable outbox: what it offers to the harvester and to operators."""
# ruff: noqa: PLC0415 - who looks at an outbox loads nothing of what changes one

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from outbox_api.base.finding import Finding
from outbox_api.portable.creation import (
    create,
    due,
    first_note,
    migrate,
    require,
    require_tables,
    require_version,
)
from outbox_api.portable.database import PortableDatabase
from outbox_api.portable.notes import read_schema
from outbox_api.portable.origin_columns import find_index
from outbox_api.portable.outboxes import PortableMembers, TablePattern, find_outboxes
from outbox_api.portable.session import Session, closing_at_errors
from outbox_api.portable.sources import EXTRAS
from outbox_api.portable.statements import Statements
from outbox_api.portable.tables import Tables
from outbox_api.portable.view import PortableView
from outbox_api.seams.affinity import ColumnIs
from outbox_api.seams.lease import Lease
from outbox_api.seams.outbox_table import OutboxTable
from outbox_api.seams.schema import Schema

if TYPE_CHECKING:
    from outbox_api.portable.dead_letters import PortableDeadLetters
    from outbox_api.portable.erasing import PortableErasing
    from outbox_api.portable.glance import PortableGlance
    from outbox_api.portable.history import PortableHistory
    from outbox_api.portable.intake_table import WaitingRows
    from outbox_api.portable.intakes import Connected, PortableIntakes
    from outbox_api.portable.journal import PortableJournal
    from outbox_api.portable.kept import PortableKept
    from outbox_api.portable.replaying import PortableReplays

View = TypeVar("View", bound=PortableView)

GLANCE_SECONDS = {"lock_timeout": 0.1, "statement_timeout": 5.0}
"""How long a statement about many outboxes may wait for one of them, and how long it may run."""


class PortableDialect(PortableDatabase):
    """One outbox in one database, of which a plugin says what :class:`PortableDatabase` leaves open.

    Only :meth:`create` and :meth:`migrate` create or alter anything. All that connects refuses tables that
    are missing, and tables that this version of outbox cannot work with (:mod:`outbox_api.seams.schema`).
    """

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

    def check(self) -> Sequence[Finding]:
        """Looks for everything that could be wrong on the side of the database.

        Never raises, creates nothing, and does with the right to SELECT.
        """
        from outbox_api.portable.check import check

        return check(self)

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
