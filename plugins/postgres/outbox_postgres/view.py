"""One connection that looks at an outbox: what PostgreSQL tells in its own way, such as its dead rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from outbox_api import MarkedRecord, OldSnapshot, Origin, Upkeep
from outbox_api.portable.intake_table import WaitingRows
from outbox_api.portable.view import PortableView

from outbox_postgres import statements
from outbox_postgres.batch_statements import whole_row
from outbox_postgres.layout import Layout
from outbox_postgres.origin_columns import IDS_OF_CLUSTER
from outbox_postgres.parking_statements import AGE, KEY
from outbox_postgres.rows import records
from outbox_postgres.session import Session

SEES_ALL = "pg_has_role('pg_read_all_stats', 'USAGE')"
"""Whether the user may see since when other users' transactions are open, and what kind of process has them.

Everybody may see which process has a snapshot, its user and its program, and prepared transactions.
"""

# A partitioned table has its rows in its partitions.
DEAD_ROWS = f"""
SELECT sum(pg_stat_get_dead_tuples(oid))::bigint,
       extract(epoch FROM clock_timestamp() - max(greatest(
           pg_stat_get_last_vacuum_time(oid), pg_stat_get_last_autovacuum_time(oid))))::float8,
       {SEES_ALL}
FROM (SELECT $1::oid AS oid UNION SELECT relid FROM pg_partition_tree($1::oid::regclass)) AS tables
"""  # noqa: S608 - of constants
"""How many dead rows the table $1 has, seconds since its last vacuum, and whether the user sees all."""

# The catalogue's own xmin of a slot keeps no rows of users. Whoever vacuums keeps none either; autovacuum's
# processes have no user. Processes without a database are those that send the log to standbys.
OLDEST_SNAPSHOT = """
SELECT owner, seconds::float8, transactions
FROM (
    SELECT format('process %s (%s of user %s)', pid, coalesce(nullif(application_name, ''), 'a program'),
                  usename) AS owner,
           extract(epoch FROM clock_timestamp() - xact_start) AS seconds,
           greatest(age(backend_xmin), age(backend_xid)) AS transactions
    FROM pg_stat_activity
    WHERE (datid IS NULL OR datname = current_database()) AND usename IS NOT NULL
      AND pid <> pg_backend_pid() AND pid NOT IN (SELECT pid FROM pg_stat_progress_vacuum)
    UNION ALL
    SELECT format('prepared transaction %L of user %s', gid, owner),
           extract(epoch FROM clock_timestamp() - prepared), age(transaction)
    FROM pg_prepared_xacts
    WHERE database = current_database()
    UNION ALL
    SELECT format('replication slot %L (%s)', slot_name,
                  CASE WHEN active THEN 'in use' ELSE 'not in use' END), NULL, age(xmin)
    FROM pg_replication_slots
) AS holders
WHERE transactions IS NOT NULL
ORDER BY transactions DESC, seconds DESC NULLS LAST
LIMIT 1
"""
"""The owner of the oldest snapshot, for how many seconds it has had it at most, and how many transactions."""


MAX_PASSED = 100_000
"""How many rows of parked keys a look for the oldest of the others passes at most."""


class PostgresView(PortableView):
    """The view of PostgreSQL. Made by ``PostgresDialect.watch``."""

    def __init__(
        self,
        session: Session,
        layout: Layout,
        *,
        intakes: Sequence[WaitingRows] = (),
        origin: Origin | None = None,
    ) -> None:
        indexes = {column: column for column in layout.indexed}
        super().__init__(
            session, layout.tables, origin=origin, indexes=indexes, intakes=intakes, keep=layout.keep
        )
        self._layout = layout
        self._numbered = session

    def _fetch_oldest(self, paused: Collection[str]) -> Sequence[Sequence[Any]]:
        """Is exact unless very many rows of parked keys lie at the head: then the row behind them counts."""
        outbox, letters = self._sql.outbox, self._sql.letters
        without, values = self._sql.without((), sorted(paused))
        where = f"WHERE {' AND '.join(without)}" if without else ""
        query = f"""
            SELECT {AGE} FROM (
                SELECT id, kafka_key, create_time, row_number() OVER (ORDER BY id) AS place
                FROM {outbox} {where}
            ) AS placed
            WHERE place > {MAX_PASSED} OR {KEY} NOT IN (
                SELECT {KEY} FROM {letters} WHERE name = {{name}} AND status = 'parked')
            ORDER BY id LIMIT 1"""  # noqa: S608 - quoted, and with parameters
        return self._session.fetch(query, name=self._name, **values)

    def _id_range(self) -> int:
        """Estimates by the server's bookkeeping; there cannot be more rows than ids in the range."""
        first, last = self._session.fetch(self._sql.spread)[0]
        if first is None:
            return 0
        spread = int(last) - int(first) + 1
        known = self._numbered.rows(statements.ESTIMATE, (self._layout.oid,), "estimate the backlog")[0][0]
        if spread > IDS_OF_CLUSTER:
            return known or 0  # between the ids of several clusters there is nothing
        return min(known or spread, spread)

    def peek(self, after: int, limit: int) -> list[MarkedRecord]:
        """Returns rows with higher ids than ``after``."""
        select = f"SELECT {whole_row(self._layout.extras)} FROM {self._layout.outbox}"  # noqa: S608 - quoted
        query = f"{select} WHERE id > $1 ORDER BY id LIMIT $2"
        return records(self._numbered.rows(query, (after, limit), "look at rows"))

    def upkeep(self) -> Upkeep:
        """Returns what the server tells everybody, and what only this user may see."""
        doing = "look for dead rows"
        [(dead, vacuumed, visible)] = self._numbered.rows(DEAD_ROWS, (self._layout.oid,), doing)
        oldest = self._numbered.rows(OLDEST_SNAPSHOT, (), doing)
        snapshot = OldSnapshot(*oldest[0]) if oldest else None
        return Upkeep(dead, vacuumed=vacuumed, snapshot=snapshot, visible=visible)
