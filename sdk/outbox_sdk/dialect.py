"""The dialect seam: an outbox in one kind of database."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from outbox_sdk.affinity import Condition
from outbox_sdk.finding import Finding
from outbox_sdk.lease import Lease
from outbox_sdk.members import Members
from outbox_sdk.outbox_table import OutboxTable
from outbox_sdk.parking import DeadLetters
from outbox_sdk.record import Record


class Capability(StrEnum):
    """What a dialect can do beyond the contract; the conformance suite asks for these, never for a name."""

    MARK_IN_ONE_STATEMENT = "mark in one statement"
    BYTES_VALUES = "bytes values"
    CONCURRENT_DDL = "concurrent ddl"
    INTAKE = "intake"
    CONCURRENT_WRITERS = "concurrent writers"
    """Several transactions may hold uncommitted records at once, and marks continue meanwhile."""
    SKIP_LOCKED = "skip locked"
    """Rows that others have locked can be told, and are left to them: no deletion of a batch stops there."""


@dataclass(frozen=True, slots=True)
class Insert:
    """How the stasher writes a record in this dialect.

    Attributes:
        sql: One INSERT. Its parameters are written ``{name}``, and literal braces twice; the stasher
            translates it into the connection's parameter style.
        bind: Makes the parameters of a record; raises ``ValueError`` for one that the table cannot hold.
    """

    sql: str
    bind: Callable[[Record], Mapping[str, object]]


class Dialect(Protocol):
    """One outbox in one database. Holds options only; connects late."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What this dialect can do beyond the contract."""
        ...

    def connect(self, eligible: Sequence[Condition] = ()) -> OutboxTable:
        """Connects to the outbox and checks that it can be harvested.

        Args:
            eligible: Conditions of which at least one must hold for a row to be marked; none means all.

        Raises:
            DriverError: Unreachable (retryable), or a missing table, column or permission (not retryable);
                the message says which, and what to do.
        """
        ...

    def dead_letters(self) -> DeadLetters:
        """Connects to the dead letters of the outbox, for an operator.

        Raises:
            DriverError: As for :meth:`connect`.
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
        """Returns the statements that create what does not exist of outbox, fence and dead letters."""
        ...

    def create(self) -> Sequence[str]:
        """Creates what does not exist of outbox, fence and dead letters.

        Changes no existing table, except that it adds the columns that a fence of an earlier version lacks.
        Idempotent.

        Returns:
            The names of the tables created.

        Raises:
            DriverError: Unreachable, or not permitted; the message then contains the DDL for somebody who is.
        """
        ...

    def check(self) -> Sequence[Finding]:
        """Looks for everything that could be wrong on the side of the database; never raises."""
        ...
