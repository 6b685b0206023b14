"""The statements that the dialect sends while it harvests, without those that mark and park.

Parameters are numbered as in the server's own protocol. ``FENCE_MATCHES`` compares the fence: in each
statement that contains it, $1 to $5 are the outbox's name, lane, lanes, token and epoch.
"""
# ruff: noqa: S608 - names are quoted by QuotedName, and every value is a parameter

from __future__ import annotations

from outbox_api.portable import TableName
from outbox_api.portable.tables import Tables

from outbox_postgres.keeping import Keeping
from outbox_postgres.parking_statements import FENCE_MATCHES, KEY, free

_NOTHING = Keeping()

SESSION = """
SELECT set_config('default_transaction_isolation', 'read committed', false),
       -- A process that stands still in the middle of a bump must not hold the fence for ever.
       set_config('idle_in_transaction_session_timeout', '10s', false),
       -- Nor one that stands still while it receives a mark's rows, or whose host has vanished: neither a
       -- statement's time-out nor the one above counts while the server waits for the client to read. A
       -- socket file knows no such thing; there the next bump ends the session (END_STALLED).
       set_config('tcp_user_timeout', '10s', false),
       set_config('tcp_keepalives_idle', '5', false),
       set_config('tcp_keepalives_interval', '2', false),
       set_config('tcp_keepalives_count', '3', false),
       set_config('lock_timeout', $1, false),
       set_config('statement_timeout', $2, false),
       -- A role's limits of a whole transaction, or of a pause between two, would end what these permit.
       CASE WHEN current_setting('transaction_timeout', true) IS NOT NULL
            THEN set_config('transaction_timeout', '0', false) END,
       CASE WHEN current_setting('idle_session_timeout', true) IS NOT NULL
            THEN set_config('idle_session_timeout', '0', false) END,
       -- The newest time of a batch is kept as text.
       set_config('datestyle', 'ISO', false),
       -- Arrays are sent as text, in which NULL is null.
       set_config('array_nulls', 'on', false),
       -- Purges and bumps are durable whatever the server's default is; stronger settings stay.
       set_config('synchronous_commit',
                  coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'on'), false)
"""
"""Settings of every session; $1 and $2 are the lock and the statement time-out."""

PLANNING = """
SELECT -- The head of the table is read through its primary key whatever the statistics of a table that
       -- fills and empties all day say; the price tag this puts on plans must not start the JIT compiler.
       -- Parallel workers would take longer to start than what they read.
       set_config('enable_seqscan', 'off', false),
       set_config('enable_bitmapscan', 'off', false),
       set_config('enable_sort', 'off', false),
       set_config('jit', 'off', false),
       set_config('max_parallel_workers_per_gather', '0', false),
       set_config('plan_cache_mode', 'force_generic_plan', false)
"""
"""Settings of a session that marks."""

BY_RANGES = """
SELECT set_config('enable_seqscan', 'off', false), set_config('jit', 'off', false)
"""
"""Settings of a session that looks for kept records by ranges of positions.

Without statistics, as after a restore or a crash, each range would read the whole table.
"""

END_STALLED = """
SELECT a.pid, coalesce(nullif(a.application_name, ''), '?'), host(a.client_addr),
       pg_terminate_backend(a.pid)
FROM pg_stat_activity AS a
WHERE a.datname = current_database() AND a.usename = current_user AND a.wait_event = 'ClientWrite'
  AND a.query_start < clock_timestamp() - make_interval(secs => $2::float8)
  AND EXISTS (
      SELECT FROM pg_locks AS l
      WHERE l.pid = a.pid AND l.locktype = 'relation' AND l.relation IN (to_regclass($1), to_regclass($3))
        AND l.mode = 'RowShareLock' AND l.granted)
"""
"""Ends the user's own sessions that hold the fence $1, or the notes $3, while nobody reads for $2 seconds."""

ESTIMATE = """
SELECT sum(greatest(pg_stat_get_live_tuples(c.oid),
                    CASE WHEN c.relpages > 0 AND c.reltuples > 0
                         THEN (c.reltuples / c.relpages * pg_relation_size(c.oid)
                               / current_setting('block_size')::int)::bigint END))::bigint
FROM (SELECT $1::oid AS oid UNION SELECT relid FROM pg_partition_tree($1::oid::regclass)) AS t
JOIN pg_class AS c ON c.oid = t.oid AND c.relkind = 'r'
"""
"""How many rows the table $1 has by the server's own bookkeeping."""


class Statements:
    """The statements for one outbox table and its fence.

    Attributes:
        purge: $6 leader id, $7 ids as an array literal. Returns nothing when the fence is lost, else the
            number of rows deleted.
        reset: As ``purge``.
        purge_free: As ``purge``, without the rows that others have locked, and those of their keys behind
            them. Returns also which chosen rows are still there, and which free ones are behind locked ones.
        reset_free: As ``purge_free``.
        carried: $1 leader id, $2 ids as an array literal. Those of the rows that carry it.
        bump: $1 name, $2 lanes, $3 holder, $4 the step, $5 the token that is expected, $6
            identities for new lanes. Returns the
            new token, once for each lane; nothing when another one than the expected is in force.
        enter: $1 name, $2 lane, $3 lanes, $4 token. Returns the new epoch and the lane's identity, or
            nothing when fenced.
        heartbeat: $6 the metrics as JSON. Returns nothing when the fence is lost.
        set_transactional: $6 the number of lanes, 0 for an end, $7 the sender, $8 the checkpoint's location.
            Returns nothing when the fence is lost.
        hold_note: $1 name. Locks the outbox's notes until the transaction ends, before any of its lanes.
    """

    def __init__(self, tables: Tables, keeping: Keeping) -> None:
        outbox, fence = tables.outbox, tables.fence
        purge, reset = f"DELETE FROM {outbox}", f"UPDATE {outbox} SET leader_id = NULL"
        self.purge, self.reset = _touch(purge, fence, keeping), _touch(reset, fence)
        self.purge_free = _touch_free(purge, tables, free(outbox, "FOR UPDATE"), keeping)
        self.reset_free = _touch_free(reset, tables, free(outbox, "FOR NO KEY UPDATE"))
        self.carried = f"SELECT id FROM {outbox} WHERE id = ANY ($2::bigint[]) AND leader_id = $1"
        self.bump = f"""
            WITH next AS (
                SELECT coalesce(max(token), 0) AS former, coalesce(max(token), 0) + $4::bigint AS token
                FROM {fence} WHERE name = $1
            ), numbered AS (
                SELECT lane FROM {fence} WHERE name = $1
                UNION SELECT generate_series(0, $2::int - 1)
            )
            INSERT INTO {fence} AS f (name, lane, lanes, token, epoch, holder, since, identity)
            SELECT $1, lane, $2, next.token, 0, $3, clock_timestamp(), coalesce(($6::text[])[lane + 1], '')
            FROM numbered, next
            WHERE $5::bigint IS NULL OR former = $5 ORDER BY lane
            ON CONFLICT (name, lane) DO UPDATE
            SET lanes = excluded.lanes, token = excluded.token, epoch = 0, holder = excluded.holder,
                since = excluded.since, heartbeat_at = NULL, metrics = '{{}}'
            RETURNING f.token"""
        self.enter = f"""
            UPDATE {fence} SET epoch = epoch + 1
            WHERE name = $1 AND lane = $2 AND lanes = $3 AND token = $4 RETURNING epoch, identity"""
        self.heartbeat = f"""
            UPDATE {fence} SET heartbeat_at = clock_timestamp(), metrics = $6
            WHERE {FENCE_MATCHES} RETURNING lane"""
        self.set_transactional = f"""
            UPDATE {fence} SET transacting = $6, sender = $7, location = $8
            WHERE {FENCE_MATCHES} RETURNING lane"""
        self.hold_note = f"SELECT FROM {tables.notes} WHERE name = $1 FOR UPDATE"


def _touch(change: str, fence: TableName, keeping: Keeping = _NOTHING) -> str:
    return f"""
        WITH fence AS MATERIALIZED (
            SELECT FROM {fence} WHERE {FENCE_MATCHES}
        ), touched AS (
            {change} WHERE id = ANY ($7::bigint[]) AND leader_id = $6 AND EXISTS (SELECT FROM fence)
            RETURNING {keeping.returning}
        ){keeping.kept("touched")}
        SELECT (SELECT count(*) FROM touched) FROM fence"""


def _touch_free(change: str, tables: Tables, free: str, keeping: Keeping = _NOTHING) -> str:
    return f"""
        WITH fence AS MATERIALIZED (
            SELECT FROM {tables.fence} WHERE {FENCE_MATCHES}
        ), {free}, carried AS (
            SELECT id, bool_and(id IN (SELECT id FROM free)) OVER (PARTITION BY {KEY} ORDER BY id) AS in_turn
            FROM {tables.outbox} WHERE id = ANY ($7::bigint[]) AND leader_id = $6
        ), chosen AS MATERIALIZED (
            SELECT id FROM carried WHERE in_turn
        ), touched AS (
            {change} WHERE id = ANY (ARRAY(SELECT id FROM chosen)) RETURNING {keeping.returning}
        ){keeping.kept("touched")}
        SELECT (SELECT count(*) FROM touched), ARRAY(SELECT id FROM chosen EXCEPT SELECT id FROM touched),
               ARRAY(SELECT id FROM free EXCEPT SELECT id FROM chosen)
        FROM fence"""
