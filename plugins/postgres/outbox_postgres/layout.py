"""An outbox as it is in the database."""

from __future__ import annotations

from dataclasses import dataclass

from outbox_api import DriverError, Fence
from outbox_api.portable import TableName
from outbox_api.portable.keeping import Keep
from outbox_api.portable.session import TableMissing
from outbox_api.portable.sources import EXTRAS
from outbox_api.portable.tables import Tables

from outbox_postgres.catalogue import Catalogue, Relation, Server
from outbox_postgres.options import PostgresOptions

TABLE_KINDS = {"r": "table", "p": "partitioned table"}
OTHER_KINDS = {"v": "view", "m": "materialized view", "f": "foreign table", "S": "sequence", "i": "index"}


@dataclass(frozen=True, slots=True)
class Layout:
    """An outbox as it is in the database.

    Attributes:
        tables: The tables with their schemas; they need not exist, but for the outbox itself.
        binary: Whether values are bytes.
        time: The base type of ``create_time``.
        extras: The columns for partition and timestamp that the outbox has.
        oid: The outbox table's object id.
        sequence: The object id of the sequence that generates all ids that are given out here, in order, or
            ``None`` if they may come from elsewhere: a cache, the application.
        replicated: Whether a subscription writes the outbox, with ids of other databases.
        indexed: The columns that an index begins with, before ``id``.
        database: The database's name.
        user: The connection's current user.
        keep: Which rows a purge keeps; ``None`` for none.
    """

    tables: Tables
    binary: bool
    time: str
    extras: tuple[str, ...]
    oid: int
    sequence: int | None
    replicated: bool
    indexed: frozenset[str]
    database: str
    user: str
    keep: Keep | None = None

    @property
    def outbox(self) -> TableName:
        """The outbox itself."""
        return self.tables.outbox

    @property
    def fence(self) -> TableName:
        """The fence."""
        return self.tables.fence

    @property
    def dead_letters(self) -> TableName:
        """The table of dead letters."""
        return self.tables.dead_letters

    @property
    def name(self) -> str:
        """The outbox's name in its auxiliary tables, however the configuration spells the table."""
        return self.tables.name

    def held(self, fence: Fence) -> tuple[str, int, int, int, int]:
        """Returns a fence as statements compare it."""
        return (self.name, fence.lane, fence.lanes, fence.token, fence.epoch)


def find_layout(catalogue: Catalogue, options: PostgresOptions, *, writable: bool = True) -> Layout:
    """Finds the outbox table, and the names of its auxiliary tables; psycopg's errors pass through."""
    server = catalogue.server()
    if writable and (server.in_recovery or server.read_only):
        state = "is a standby" if server.in_recovery else "is read-only"
        raise DriverError(
            f"the server of database '{server.database}' {state}; name the primary in dataSource, or "
            "several hosts with target_session_attrs=read-write",
            retryable=True,
        )
    oid, name, _ = _find_outbox(catalogue, options, server)
    columns = catalogue.columns(oid)
    value, time = columns.get("kafka_value"), columns.get("create_time")
    return Layout(
        tables=Tables(*(table.within(name.schema) for table in options.tables))._replace(outbox=name),
        binary=value is not None and value.base == "bytea",
        time=time.base if time else "timestamptz",
        extras=tuple(name for name in EXTRAS if name in columns),
        oid=oid,
        sequence=catalogue.sequence_of_ids(oid),
        replicated=catalogue.replicated(oid),
        indexed=catalogue.indexed(oid),
        database=server.database,
        user=server.user,
        keep=options.keep,
    )


def _find_outbox(catalogue: Catalogue, options: PostgresOptions, server: Server) -> Relation:
    wanted = options.outbox
    found = catalogue.find(wanted)
    if found is None:
        path = f"the search path ({', '.join(catalogue.connection.schemas)})"
        where = f"schema '{wanted.schema}'" if wanted.schema else path
        cure = "run 'outbox init', correct outboxTable, or grant USAGE on its schema"
        if not wanted.schema and catalogue.connection.has_used_path:
            cure = f"{cure}; or a pooler in transaction mode, or one that resets no session, stands between"
        raise TableMissing(
            f"user '{server.user}' sees no table '{wanted.table}' in {where} of database "
            f"'{server.database}'; {cure}",
            retryable=False,
        )
    if found.kind not in TABLE_KINDS:
        kind = OTHER_KINDS.get(found.kind, "something else")
        name = f"{found.name.schema}.{found.name.table}"
        raise DriverError(f"'{name}' is not a table but a {kind}; name the table itself", retryable=False)
    return found
