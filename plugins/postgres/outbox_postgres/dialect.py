"""The PostgreSQL dialect: options, and connections made from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from outbox_sdk import Capability, Condition, Finding, Schema

from outbox_postgres.ddl import ddl
from outbox_postgres.options import PostgresOptions

if TYPE_CHECKING:
    from outbox_postgres.dead_letters import PostgresDeadLetters
    from outbox_postgres.journal import PostgresJournal
    from outbox_postgres.lease import PostgresLease
    from outbox_postgres.members import PostgresMembers
    from outbox_postgres.table import PostgresTable
    from outbox_postgres.view import PostgresView

_CAPABILITIES = frozenset(
    {
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

    def watch(self) -> PostgresView:
        """Connects to the outbox to look at it."""
        from outbox_postgres.connection import open_view  # noqa: PLC0415 - loads psycopg only when it is needed

        return open_view(self._options)

    def dead_letters(self, *, read_only: bool = False) -> PostgresDeadLetters:
        """Connects to the dead letters of the outbox, for an operator."""
        from outbox_postgres.connection import open_dead_letters  # noqa: PLC0415 - loads psycopg only when it is needed

        return open_dead_letters(self._options, read_only=read_only)

    def journal(self, *, read_only: bool = False) -> PostgresJournal:
        """Connects to the journal of the outbox."""
        from outbox_postgres.connection import open_journal  # noqa: PLC0415 - loads psycopg only when it is needed

        return open_journal(self._options, read_only=read_only)

    def lease(self) -> PostgresLease:
        """Connects to the outbox's lease."""
        from outbox_postgres.connection import open_lease  # noqa: PLC0415 - loads psycopg only when it is needed

        return open_lease(self._options)

    def members(self) -> PostgresMembers:
        """Connects to the list of members beside the outbox's fence."""
        from outbox_postgres.connection import open_members  # noqa: PLC0415 - loads psycopg only when it is needed

        return open_members(self._options)

    def free_connections(self) -> int:
        """Returns how many more connections the server, the database and the role permit."""
        from outbox_postgres.check import free_connections  # noqa: PLC0415 - loads psycopg only when it is needed

        return free_connections(self._options)

    def find_outboxes(self, pattern: str) -> Sequence[str]:
        """Returns the names of the outboxes in the database that match a pattern, as names fold in SQL."""
        from outbox_postgres.outboxes import find_outboxes  # noqa: PLC0415 - loads psycopg only when it is needed

        return find_outboxes(self._options, pattern)

    def stash_connection(self) -> Any:
        """Opens a psycopg connection with transactions on, as an application would have."""
        from outbox_postgres.connection import connect_as_application  # noqa: PLC0415 - loads psycopg only when needed

        return connect_as_application(self._options)

    def ddl(self) -> Sequence[str]:
        """Returns the statements that create what does not exist of the outbox."""
        return ddl(self._options)

    def create(self) -> Sequence[str]:
        """Creates what does not exist of the outbox, and notes its version."""
        from outbox_postgres.creation import create  # noqa: PLC0415 - loads psycopg only when it is needed

        return create(self._options)

    def schema(self) -> Schema | None:
        """Returns the version that is noted for the tables."""
        from outbox_postgres.migration import schema  # noqa: PLC0415 - loads psycopg only when it is needed

        return schema(self._options)

    def migrations(self) -> Sequence[str]:
        """Returns the statements that bring existing tables up to this version."""
        from outbox_postgres.migration import migrations  # noqa: PLC0415 - loads psycopg only when it is needed

        return migrations(self._options)

    def migrate(self) -> Sequence[str]:
        """Executes them, while harvesters run."""
        from outbox_postgres.migration import migrate  # noqa: PLC0415 - loads psycopg only when it is needed

        return migrate(self._options)

    def check(self) -> Sequence[Finding]:
        """Looks at everything that could be wrong with the database side."""
        from outbox_postgres.check import check  # noqa: PLC0415 - loads psycopg only when it is needed

        return check(self._options)
