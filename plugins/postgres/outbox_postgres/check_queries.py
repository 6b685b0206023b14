"""Checks of a server and of an outbox table that take one query each."""

from __future__ import annotations

from dataclasses import dataclass

from outbox_api import Level

from outbox_postgres.errors import STANDBY_CURE
from outbox_postgres.view import SEES_ALL


@dataclass(frozen=True, slots=True)
class Probe:
    """A query that returns a sentence for each problem, perhaps with its cure; if none, all is ``well``."""

    subject: str
    sql: str  # the probes of a table have its object id as $1
    level: Level
    cure: str
    well: str


FREE_CONNECTIONS = """
SELECT 1 + least(
    current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
        - coalesce(current_setting('reserved_connections', true)::int, 0)
        - (SELECT sum(numbackends) FROM pg_stat_database),
    CASE WHEN d.datconnlimit >= 0 THEN d.datconnlimit - pg_stat_get_db_numbackends(d.oid) END,
    CASE WHEN r.rolconnlimit >= 0 THEN
        r.rolconnlimit - (SELECT count(*) FROM pg_stat_activity WHERE usename = r.rolname)
    END)
FROM pg_database AS d, pg_roles AS r
WHERE d.datname = current_database() AND r.rolname = session_user
"""
"""How many connections are left; this one is counted among them, as it ends."""

SERVER_PROBES = (
    Probe(
        subject="durability",
        sql="""
            SELECT name || ' is off: a crash of the server can lose records that were committed'
                   || CASE name WHEN 'synchronous_commit' THEN ''
                      ELSE ', and marks and purges, so that even exactly-once delivery repeats records' END
            FROM pg_settings
            WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') AND setting = 'off'""",
        level=Level.WARNING,
        cure="switch it on (purges and advances are durable even where synchronous_commit is off)",
        well="commits are durable",
    ),
    Probe(
        subject="standbys",
        # A logical receiver has a database, and is nothing to fail over to.
        sql="""
            SELECT 'no standby is synchronous: after a failover the latest records can be missing, and even '
                   'exactly-once delivery can repeat records whose purge the standby had not received'
            WHERE current_setting('synchronous_standby_names') = '' AND EXISTS (
                SELECT FROM pg_stat_replication JOIN pg_stat_activity USING (pid) WHERE datid IS NULL)""",
        level=Level.WARNING,
        cure="name the standbys to fail over to in synchronous_standby_names, if that must not happen",
        well="none, or synchronous",
    ),
    Probe(
        subject="synchronous standbys",
        # Who may not see the state of a standby sees that it is there.
        sql="""
            SELECT format('synchronous_standby_names is %L, and no such standby is attached: every commit '
                          'waits (SyncRep), of the application too',
                          current_setting('synchronous_standby_names'))
            WHERE current_setting('synchronous_standby_names') <> ''
              AND current_setting('synchronous_commit') NOT IN ('off', 'local')
              AND NOT EXISTS (SELECT FROM pg_stat_replication
                              WHERE coalesce(sync_state, 'sync') IN ('sync', 'quorum'))""",
        level=Level.ERROR,
        cure=STANDBY_CURE,
        well="none is missing",
    ),
    Probe(
        subject="encoding",
        sql="""
            SELECT 'the database has the encoding ' || pg_encoding_to_char(encoding)
            FROM pg_database
            WHERE datname = current_database() AND pg_encoding_to_char(encoding) <> 'UTF8'""",
        level=Level.WARNING,
        cure="keep the outbox in a database with the encoding UTF8",
        well="UTF8",
    ),
    Probe(
        subject="autovacuum",
        sql="""
            SELECT 'autovacuum is off: rows that were harvested are never removed from the disk'
            WHERE current_setting('autovacuum') = 'off'""",
        level=Level.WARNING,
        cure="set autovacuum = on",
        well="on",
    ),
    Probe(
        subject="old transactions",
        sql=f"""
            SELECT 'cannot see other users'' transactions',
                   format('GRANT pg_read_all_stats TO %I', current_user)
            WHERE NOT {SEES_ALL}
            UNION ALL
            SELECT format('process %s (%s) has had a transaction open for %s minutes', pid,
                          coalesce(nullif(application_name, ''), usename, backend_type),
                          floor(extract(epoch FROM clock_timestamp() - xact_start) / 60)), NULL
            FROM pg_stat_activity
            WHERE xact_start < clock_timestamp() - interval '10 minutes' AND backend_type = 'client backend'
            UNION ALL
            SELECT format('prepared transaction %L has been waiting for %s seconds', gid,
                          floor(extract(epoch FROM clock_timestamp() - prepared))), NULL
            FROM pg_prepared_xacts
            WHERE database = current_database() AND prepared < clock_timestamp() - interval '1 minute'
            UNION ALL
            SELECT format('replication slot %L is %s transactions behind', slot_name,
                          greatest(age(xmin), age(catalog_xmin))), NULL
            FROM pg_replication_slots
            WHERE greatest(age(xmin), age(catalog_xmin)) > 1000000""",  # noqa: S608 - of constants
        level=Level.WARNING,
        cure="end it: harvested rows cannot be vacuumed meanwhile, and its own records wait for it",
        well="none",
    ),
)

# A partitioned table has its rows, and what settings there are for them, in its partitions.
_WITH_ROWS = """
pg_class AS c JOIN (SELECT $1::oid AS oid UNION SELECT relid FROM pg_partition_tree($1::oid::regclass)) AS t
ON t.oid = c.oid AND c.relkind = 'r'
"""

TABLE_PROBES = (
    Probe(
        subject="table durability",
        sql=f"""
            SELECT format('%s is unlogged: after a crash of the server it is empty', c.oid::regclass),
                   format('ALTER TABLE %s SET LOGGED', c.oid::regclass)
            FROM {_WITH_ROWS} WHERE c.relpersistence <> 'p'""",  # noqa: S608 - of constants
        level=Level.WARNING,
        cure="",
        well="survives a crash",
    ),
    Probe(
        subject="primary key",
        sql="""
            SELECT CASE c.relkind WHEN 'p'
                       THEN 'no index of the partitioned table begins with id'
                       ELSE 'no unique index has id as its only column' END
                   || ': every mark and purge reads the whole table',
                   format(CASE c.relkind WHEN 'p' THEN 'CREATE INDEX ON %s (id)'
                          ELSE 'ALTER TABLE %s ADD PRIMARY KEY (id)' END, c.oid::regclass)
            FROM pg_class AS c
            WHERE c.oid = $1 AND NOT EXISTS (
                SELECT FROM pg_index AS i
                JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
                WHERE i.indrelid = $1 AND i.indisvalid AND i.indpred IS NULL AND a.attname = 'id'
                  AND (c.relkind = 'p' OR i.indisunique AND i.indnkeyatts = 1))""",
        level=Level.ERROR,
        cure="",
        well="on id",
    ),
    Probe(
        subject="leader id index",
        sql="""
            SELECT format('index %s holds leader_id: each mark writes it, and cannot update rows in place',
                          c.relname)
            FROM pg_index AS i
            JOIN pg_class AS c ON c.oid = i.indexrelid
            JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attname = 'leader_id'
            WHERE i.indrelid = $1
              AND (a.attnum = ANY (i.indkey) OR EXISTS (
                  SELECT FROM pg_depend AS d
                  WHERE d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid
                    AND d.refclassid = 'pg_class'::regclass AND d.refobjid = i.indrelid
                    AND d.refobjsubid = a.attnum))""",
        level=Level.WARNING,
        cure="drop the index; marks find their rows through the primary key",
        well="none, as it should be",
    ),
    Probe(
        subject="fill factor",
        sql=f"""
            SELECT format('the fill factor of %s is %s: a page has no room for the marked versions of '
                          'its rows',
                          c.oid::regclass, coalesce(f.option_value, '100')),
                   format('ALTER TABLE %s SET (fillfactor = 45), for new pages', c.oid::regclass)
            FROM {_WITH_ROWS}
            LEFT JOIN LATERAL pg_options_to_table(c.reloptions) AS f ON f.option_name = 'fillfactor'
            WHERE coalesce(f.option_value, '100')::int > 70""",  # noqa: S608 - of constants
        level=Level.WARNING,
        cure="",
        well="leaves room for marks",
    ),
    Probe(
        subject="vacuum threshold",
        sql=f"""
            SELECT format('autovacuum waits until %s %% of the rows are dead: with a large backlog, too many',
                          round(100 * scale.factor)),
                   format('ALTER TABLE %s SET (autovacuum_vacuum_scale_factor = 0, '
                          'autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0)',
                          c.oid::regclass)
            FROM {_WITH_ROWS}, LATERAL (
                SELECT coalesce((SELECT option_value FROM pg_options_to_table(c.reloptions)
                                 WHERE option_name = 'autovacuum_vacuum_scale_factor'),
                                current_setting('autovacuum_vacuum_scale_factor'))::numeric AS factor
            ) AS scale
            WHERE scale.factor > 0.02""",  # noqa: S608 - of constants
        level=Level.WARNING,
        cure="",
        well="low enough",
    ),
    Probe(
        subject="table vacuum",
        sql=f"""
            SELECT format('autovacuum is switched off for %s', c.oid::regclass),
                   format('ALTER TABLE %s RESET (autovacuum_enabled)', c.oid::regclass)
            FROM {_WITH_ROWS}, pg_options_to_table(c.reloptions) AS f
            WHERE f.option_name = 'autovacuum_enabled' AND NOT f.option_value::boolean""",  # noqa: S608 - as above
        level=Level.WARNING,
        cure="",
        well="not switched off",
    ),
    Probe(
        subject="triggers and rules",
        sql="""
            SELECT format('trigger %I runs for each mark or purge', t.tgname)
            FROM pg_trigger AS t
            WHERE t.tgrelid = $1 AND NOT t.tgisinternal AND t.tgenabled <> 'D'
              AND (t.tgtype & 8 <> 0 OR t.tgtype & 16 <> 0)
            UNION ALL
            SELECT format('rule %I changes what a statement does', r.rulename)
            FROM pg_rewrite AS r WHERE r.ev_class = $1
            UNION ALL
            SELECT format('foreign key %I of %s refers to the outbox', k.conname, k.conrelid::regclass)
            FROM pg_constraint AS k WHERE k.confrelid = $1 AND k.contype = 'f'""",
        level=Level.WARNING,
        cure="remove it: it slows each record down, or keeps records from being deleted",
        well="none",
    ),
    Probe(
        subject="grants",
        sql="""
            SELECT format('%s may choose ids and leader ids: it can take the id of somebody''s next record, '
                          'or delay records', coalesce(name, 'everybody')),
                   format('REVOKE INSERT ON %1$s FROM %2$s; GRANT INSERT (create_time, kafka_topic, '
                          'kafka_key, kafka_value, kafka_header_keys, kafka_header_values) ON %1$s TO %2$s',
                          oid::regclass, coalesce(quote_ident(name), 'PUBLIC'))
            FROM (
                SELECT DISTINCT c.oid, r.rolname::text AS name
                FROM pg_class AS c
                LEFT JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname IN ('id', 'leader_id')
                CROSS JOIN aclexplode(c.relacl || a.attacl) AS acl
                LEFT JOIN pg_roles AS r ON r.oid = acl.grantee
                WHERE c.oid = $1 AND acl.privilege_type = 'INSERT' AND acl.grantee <> c.relowner
            ) AS wide
            UNION ALL
            SELECT format('%s may change keys: a record whose key changes while it is published can be '
                          'published again by another lane, also with exactly-once delivery',
                          coalesce(name, 'everybody')),
                   format('REVOKE UPDATE ON %s FROM %s', oid::regclass, coalesce(quote_ident(name), 'PUBLIC'))
            FROM (
                SELECT DISTINCT c.oid, r.rolname::text AS name
                FROM pg_class AS c
                LEFT JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'kafka_key'
                CROSS JOIN aclexplode(c.relacl || a.attacl) AS acl
                LEFT JOIN pg_roles AS r ON r.oid = acl.grantee
                WHERE c.oid = $1 AND acl.privilege_type = 'UPDATE' AND acl.grantee <> c.relowner
                  -- Who may delete rows is no application.
                  AND NOT coalesce(has_table_privilege(nullif(acl.grantee, 0), c.oid, 'DELETE'), false)
            ) AS rewriting""",
        level=Level.WARNING,
        cure="",
        well="nobody but the owner may choose ids or change keys",
    ),
    Probe(
        subject="row security",
        sql="""
            SELECT 'row security hides rows from this user',
                   format('ALTER ROLE %I BYPASSRLS, or ALTER TABLE %s DISABLE ROW LEVEL SECURITY',
                          current_user, $1::oid::regclass)
            WHERE row_security_active($1::oid)""",
        level=Level.ERROR,
        cure="",
        well="not active",
    ),
    Probe(
        subject="inheritance",
        sql="""
            SELECT format('rows of table %s, which inherits the outbox, are harvested as its own, '
                          'and their ids may be there twice', i.inhrelid::regclass),
                   format('ALTER TABLE %s NO INHERIT %s', i.inhrelid::regclass, c.oid::regclass)
            FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhparent AND c.relkind = 'r'
            WHERE c.oid = $1""",
        level=Level.ERROR,
        cure="",
        well="no table inherits the outbox",
    ),
)
