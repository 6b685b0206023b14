"""The dead rows of an outbox, and the oldest snapshot that keeps the server from removing them."""

from __future__ import annotations

from outbox_sdk import OldSnapshot, Upkeep

from outbox_postgres.layout import Layout
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


def read_upkeep(session: Session, layout: Layout) -> Upkeep:
    """Returns what the server tells everybody, and what only this user may see."""
    doing = "look for dead rows"
    [(dead, vacuumed, visible)] = session.rows(DEAD_ROWS, (layout.oid,), doing)
    oldest = session.rows(OLDEST_SNAPSHOT, (), doing)
    snapshot = OldSnapshot(*oldest[0]) if oldest else None
    return Upkeep(dead, vacuumed=vacuumed, snapshot=snapshot, visible=visible)
