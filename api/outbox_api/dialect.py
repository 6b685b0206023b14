"""The dialect seam: an outbox in one kind of database."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from outbox_api.affinity import ColumnIs
from outbox_api.finding import Finding
from outbox_api.glance import Glance
from outbox_api.intakes import Intakes
from outbox_api.journal import Journal
from outbox_api.lease import Lease, Members
from outbox_api.outbox_table import OutboxTable
from outbox_api.outbox_view import OutboxView
from outbox_api.parking import DeadLetters
from outbox_api.record import Record
from outbox_api.schema import Schema


class Capability(StrEnum):
    """What a dialect can do beyond the contract; the conformance suite asks for these, never for a name."""

    BYTES_VALUES = "bytes values"
    CONCURRENT_DDL = "concurrent ddl"
    INTAKE = "intake"
    CONCURRENT_WRITERS = "concurrent writers"
    """Several transactions may hold uncommitted records at once, and marks continue meanwhile."""
    SKIP_LOCKED = "skip locked"
    """Rows that others have locked can be told, and are left to them: no purge, reset or park stops there."""


@dataclass(frozen=True, slots=True)
class Insert:
    """How the stasher writes a record in this dialect.

    Attributes:
        sql: One INSERT. Its parameters are written ``{name}``, and literal braces twice; the stasher
            translates it into the connection's parameter style.
        bind: Makes the parameters of a record, which have the names of the columns; raises ``ValueError``
            for one that the table cannot hold.
    """

    sql: str
    bind: Callable[[Record], Mapping[str, object]]


class Dialect(Protocol):
    """One outbox in one database. Holds options only; connects late.

    Only :meth:`create` and :meth:`migrate` create or alter anything. All that connects refuses tables that
    are missing, and tables that this version of outbox cannot work with (:mod:`outbox_api.schema`).
    """

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What this dialect can do beyond the contract."""
        ...

    def connect(self, eligible: Sequence[ColumnIs] = ()) -> OutboxTable:
        """Connects to the outbox and checks that it can be harvested.

        Args:
            eligible: Conditions of which at least one must hold for a row to be marked; none means all.

        Raises:
            DriverError: Unreachable (retryable), or a missing table, column or permission (not retryable);
                the message says which, and what to do.
        """
        ...

    def intakes(self) -> Intakes:
        """Returns what moves rows of other tables into the outbox: those of the option ``intake``.

        Connects when it is used. Asked for only if there is such an option, and it names a table.
        """
        ...

    def watch(self) -> OutboxView:
        """Connects to the outbox to look at it, in a session that cannot write.

        Asks for the right to SELECT on the outbox, its fence and its dead letters, and works on a standby.

        Raises:
            DriverError: As for :meth:`connect`.
        """
        ...

    def dead_letters(self, *, read_only: bool = False) -> DeadLetters:
        """Connects to the dead letters of the outbox, for an operator.

        Args:
            read_only: Whether only to look, see :meth:`watch`: all but ``find`` and ``waiting`` is refused.

        Raises:
            DriverError: As for :meth:`connect`.
        """
        ...

    def journal(self, *, read_only: bool = False) -> Journal:
        """Connects to the journal of the outbox.

        Asks for the rights to SELECT, INSERT and UPDATE on the journal, beside those to look at the rest.

        Args:
            read_only: Whether only to read entries, see :meth:`watch`: SELECT does.

        Raises:
            DriverError: As for :meth:`connect`; tables of an earlier version have no journal yet, and
                ``outbox migrate`` adds it. Nothing but this method asks for the journal's table.
        """
        ...

    def lease(self) -> Lease:
        """Connects to the outbox's lease, for an elector that needs nothing but the database.

        Raises:
            DriverError: As for :meth:`connect`.
        """
        ...

    def members(self) -> Members:
        """Connects to the list of the harvesters that are alive, which is kept beside the outbox's fence.

        Raises:
            DriverError: As for :meth:`connect`.
        """
        ...

    def glance(self) -> Glance:
        """Connects to look at this outbox and others of its database, without a look at their tables.

        Raises:
            DriverError: Unreachable, or not permitted.
        """
        ...

    def free_connections(self) -> int | None:
        """Returns how many more connections this user may open now; ``None`` if that is not known.

        Raises:
            DriverError: Unreachable, or not permitted.
        """
        ...

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
        ...

    def stash_connection(self) -> Any:
        """Opens a DB-API connection to the outbox's database, as an application would open it to stash.

        The caller commits and closes. For ``outbox pump``.

        Raises:
            DriverError: Unreachable, or not permitted.
        """
        ...

    def ddl(self) -> Sequence[str]:
        """Returns the statements that create what does not exist of an outbox; connects to nothing."""
        ...

    def create(self) -> Sequence[str]:
        """Creates what does not exist of the outbox, its fence, its dead letters and all beside them.

        Changes no existing table, except that it adds to the outbox what an origin needs. Notes the version
        of the tables if it created the fence. Idempotent.

        Returns:
            The names of the tables created.

        Raises:
            DriverError: Unreachable, or not permitted; the message then contains the DDL for somebody who is.
        """
        ...

    def schema(self) -> Schema | None:
        """Returns the version that is noted for the existing tables; ``None`` if none is. Reads only.

        Raises:
            DriverError: Unreachable, or there are no tables.
        """
        ...

    def migrations(self) -> Sequence[str]:
        """Returns the statements that bring existing tables up to ``SCHEMA``; none if they are. Reads only.

        They only add, so that harvesters of the earlier version continue. What does not exist at all is left
        to :meth:`create`.

        Raises:
            DriverError: Unreachable, there are no tables, or they are of a later version.
        """
        ...

    def migrate(self) -> Sequence[str]:
        """Executes :meth:`migrations`, while harvesters run; idempotent, and several processes may at once.

        No statement waits long for a lock that would hold up the harvesters behind it.

        Returns:
            What it executed, in order.

        Raises:
            DriverError: A lock was not to be had (retryable), or not permitted; the message then contains the
                statements for somebody who is.
        """
        ...

    def check(self) -> Sequence[Finding]:
        """Looks for everything that could be wrong on the side of the database.

        Never raises, creates nothing, and does with the right to SELECT.
        """
        ...
