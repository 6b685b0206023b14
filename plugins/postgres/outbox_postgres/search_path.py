"""Connections on which nobody but the server defines what a name or an operator means.

Where others may create in a schema of the search path, they can define functions and operators that fit the
arguments of our statements better than the server's own do, and these would run with the harvester's rights.
So a session learns the schemas of its path, and leaves them, before any statement whose meaning they could
change. Names that users write without a schema are looked for in the schemas learned.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic
from types import MappingProxyType
from typing import Any, Self, TypeVar

import psycopg
from outbox_api.portable import TableName
from psycopg.pq import TransactionStatus

from outbox_postgres.options import QuotedName

Result = TypeVar("Result")

GRACE = 5.0
"""Seconds beyond the statement's own time-out."""


class SilenceError(psycopg.OperationalError):
    """The server was silent for too long, and the connection is closed."""


_WAITS_FOR_STANDBYS = "SyncRepWaitForLSN"
"""The server's function that warns of a wait that was cancelled; the words depend on its language."""


class UnreplicatedError(psycopg.OperationalError):
    """A change is committed here, and perhaps on no standby: after a failover it may be undone."""


def _heard(gen: Generator[Any, Any, Result], patience: float) -> Generator[Any, Any, Result]:
    """Passes on what psycopg's loop tells a generator, until it has told for too long that nothing came."""
    try:
        wanted = next(gen)
        deadline = monotonic() + patience
        while True:
            ready = yield wanted
            if ready:
                deadline = monotonic() + patience
            elif monotonic() > deadline:
                raise SilenceError(f"the server has not answered for {patience:g} s")
            wanted = gen.send(ready)
    except StopIteration as end:
        result: Result = end.value
        return result


# The function's name has a schema, and SET takes no expressions: nothing here can be redefined. Temporary
# tables come last only where the path says so; otherwise they hide the catalogue. Two statements, since the
# order is certain of these, in one round trip.
_LEARN_AND_LEAVE = "SELECT pg_catalog.current_schemas(false); SET search_path TO pg_catalog, pg_temp"


class Connection(psycopg.Connection[Any]):
    """A connection whose search path is the server's own catalogue, and that no silent server holds up.

    It is closed when the server has been silent for too long amid a statement. Neither libpq nor the server
    can end such a wait: where a firewall or a proxy has forgotten the connection and drops what is sent, the
    statement may never have reached the server. TCP notices that within ten seconds only if nobody
    acknowledges what is sent, and a proxy does.

    Attributes:
        patience: Seconds of silence; ``None`` for any time.
        schemas: The schemas of the path that the session began with, in their order: those that exist and
            that the user may use, without the catalogue and without temporary tables unless the path names
            them.
        parameters: Those that it was made with.
        watches: Whether no statement can write.
    """

    patience: float | None = None
    schemas: Sequence[str] = ()
    parameters: Mapping[str, str] = MappingProxyType({})
    watches = False
    _unreplicated = ""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.add_notice_handler(self._notice)

    def wait(self, gen: Generator[Any, Any, Result], *arguments: Any, **options: Any) -> Result:
        """Executes what psycopg does, as long as the server goes on to answer."""
        if self.patience is None or arguments or options:
            return super().wait(gen, *arguments, **options)
        try:
            return super().wait(_heard(gen, self.patience))
        except SilenceError:
            self.close()
            raise

    def _notice(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.source_function == _WAITS_FOR_STANDBYS:
            self._unreplicated = notice.message_primary or _WAITS_FOR_STANDBYS

    def _must_be_replicated(self) -> None:
        """Raises an error if somebody has cancelled the wait of a commit for synchronous standbys."""
        if warning := self._unreplicated:
            self._unreplicated = ""
            raise UnreplicatedError(f"{warning}: what was committed may be undone by a failover")

    def execute(
        self, query: Any, params: Any = None, *, prepare: bool | None = None, binary: bool = False
    ) -> psycopg.Cursor[Any]:
        """Sends a statement; if the connection only watches, in a transaction that cannot write.

        A setting of the session would do for all statements at once. But a pooler in transaction mode would
        hand it on with the session, and others could not write.
        """
        if self.watches and self._idle:
            with self.transaction():
                return super().execute(query, params, prepare=prepare, binary=binary)
        cursor = super().execute(query, params, prepare=prepare, binary=binary)
        self._must_be_replicated()
        return cursor

    @contextmanager
    def transaction(self, *arguments: Any, **options: Any) -> Iterator[psycopg.Transaction]:
        """Begins a transaction as psycopg does; if the connection only watches, one that cannot write."""
        first = self._idle
        with super().transaction(*arguments, **options) as transaction:
            if self.watches and first:
                super().execute("SET TRANSACTION READ ONLY")
            yield transaction
        self._must_be_replicated()

    @property
    def _idle(self) -> bool:
        return self.info.transaction_status is TransactionStatus.IDLE

    def leave_search_path(self) -> Self:
        """Learns the schemas of the search path, and leaves them until the session ends.

        Must come before any statement that calls a function or names a table.
        """
        row = self.execute(_LEARN_AND_LEAVE).fetchone()
        self.schemas = tuple(row[0]) if row else ()
        return self

    @property
    def has_used_path(self) -> bool:
        """Whether the session began with the path that we leave sessions with."""
        return "pg_catalog" in self.schemas

    def candidates(self, name: TableName) -> list[str]:
        """Returns what a name can mean, as SQL writes it; of those that exist, the first is meant."""
        if name.schema:
            return [str(name)]
        return [str(QuotedName(schema, name.table)) for schema in self.schemas]

    def new(self, name: TableName) -> TableName:
        """Returns a name with the schema in which its table is to be created."""
        if not name.schema and not self.schemas:
            raise psycopg.errors.InvalidSchemaName("no schema has been selected to create in")
        return name if name.schema else name.within(self.schemas[0])
