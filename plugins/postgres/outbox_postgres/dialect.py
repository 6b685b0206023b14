"""The PostgreSQL dialect: options, and connections made from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from outbox_sdk import Capability, Condition, Finding

from outbox_postgres.ddl import ddl
from outbox_postgres.options import PostgresOptions

if TYPE_CHECKING:
    from outbox_postgres.dead_letters import PostgresDeadLetters
    from outbox_postgres.lease import PostgresLease
    from outbox_postgres.members import PostgresMembers
    from outbox_postgres.table import PostgresTable

_CAPABILITIES = frozenset(
    {
        Capability.MARK_IN_ONE_STATEMENT,
        Capability.BYTES_VALUES,
        Capability.CONCURRENT_DDL,
        Capability.CONCURRENT_WRITERS,
        Capability.INTAKE,
        Capability.SKIP_LOCKED,
    }
)


class PostgresDialect:
    """An outbox in a PostgreSQL database."""

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What PostgreSQL can do beyond the contract."""
        return _CAPABILITIES

    def connect(self, eligible: Sequence[Condition] = ()) -> PostgresTable:
        """Connects to the outbox and makes sure that it can be harvested."""
        # psycopg is loaded here and not earlier: listing the drivers must not need it.
        from outbox_postgres.connection import open_table  # noqa: PLC0415 - loads psycopg only when it is needed

        return open_table(self._options, eligible)

    def dead_letters(self) -> PostgresDeadLetters:
        """Connects to the dead letters of the outbox, for an operator."""
        from outbox_postgres.connection import open_dead_letters  # noqa: PLC0415 - loads psycopg only when it is needed

        return open_dead_letters(self._options)

    def lease(self) -> PostgresLease:
        """Connects to the outbox's lease."""
        from outbox_postgres.connection import open_lease  # noqa: PLC0415 - loads psycopg only when it is needed

        return open_lease(self._options)

    def members(self) -> PostgresMembers:
        """Connects to the list of members beside the outbox's fence."""
        from outbox_postgres.connection import open_members  # noqa: PLC0415 - loads psycopg only when it is needed

        return open_members(self._options)

    def find_outboxes(self, pattern: str) -> Sequence[str]:
        """Returns the names of the outboxes in the database that match a pattern, as names fold in SQL."""
        from outbox_postgres.outboxes import find_outboxes  # noqa: PLC0415 - loads psycopg only when it is needed

        return find_outboxes(self._options, pattern)

    def stash_connection(self) -> Any:
        """Opens a psycopg connection with transactions on, as an application would have."""
        from outbox_postgres.connection import connect_as_application  # noqa: PLC0415 - loads psycopg only when needed

        return connect_as_application(self._options)

    def ddl(self) -> Sequence[str]:
        """Returns the statements that create outbox, fence and dead letters where they do not exist."""
        return tuple(ddl(self._options).values())

    def create(self) -> Sequence[str]:
        """Creates outbox, fence and dead letters where they do not exist."""
        from outbox_postgres.connection import create  # noqa: PLC0415 - loads psycopg only when it is needed

        return create(self._options)

    def check(self) -> Sequence[Finding]:
        """Looks at everything that could be wrong with the database side."""
        from outbox_postgres.check import check  # noqa: PLC0415 - loads psycopg only when it is needed

        return check(self._options)
