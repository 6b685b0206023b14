"""Every statement that the dialect sends while it harvests, in one place.

Parameters are numbered as in the server's own protocol. ``_HELD`` is the fence: $1 to $5 are the outbox's
name, lane, lanes, token and attempt in each statement that it is part of.
"""

from __future__ import annotations

from collections.abc import Sequence

from outbox_postgres.options import PostgresOptions, TableName
from outbox_sdk import ColumnIs, Condition

_HELD = "name = $1 AND lane = $2 AND lanes = $3 AND token = $4 AND attempt = $5"
_FIRST_CONDITION = 9

SESSION = """
SELECT set_config('default_transaction_isolation', 'read committed', false),
       -- A process that stands still in the middle of a bump must not hold the fence for ever.
       set_config('idle_in_transaction_session_timeout', '10s', false),
       set_config('lock_timeout', $1, false),
       set_config('statement_timeout', $2, false),
       -- Purges and bumps are durable whatever the server's default; stronger settings stay.
       set_config('synchronous_commit', CASE current_setting('synchronous_commit')
                                        WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false),
       -- The head of the table is read through its primary key whatever the statistics of a table that
       -- fills and empties all day say; the price tag this puts on plans must not start the JIT compiler.
       set_config('enable_seqscan', 'off', false),
       set_config('enable_bitmapscan', 'off', false),
       set_config('enable_sort', 'off', false),
       set_config('jit', 'off', false),
       set_config('plan_cache_mode', 'force_generic_plan', false)
"""
"""Settings of a harvesting session; $1 and $2 are the lock and the statement time-out."""


class Statements:
    """The statements for one outbox table and its fence.

    Attributes:
        mark: $6 leader id, $7 limit, $8 the lowest id to look at, then the values of the conditions. One row
            at least comes back while the fence is held; its id is null when nothing was marked.
        purge: $6 leader id, $7 ids as an array literal. No row when the fence is lost, else the count.
        reset: As ``purge``.
    """

    def __init__(
        self, outbox: TableName, fence: TableName, lanes: int, eligible: Sequence[Condition] = ()
    ) -> None:
        """Writes the statements; ``lanes`` says whether the lane's own rows must be picked (more than one)."""
        wanted = ["(leader_id IS NULL OR leader_id <> $6)", "id >= $8"]
        if lanes > 1:
            wanted.append("(hashtext(coalesce(kafka_key::text, '')) & 2147483647) % $3::int = $2::int")
        if eligible:
            wanted.append(
                f"({' OR '.join(_condition(c, _FIRST_CONDITION + n) for n, c in enumerate(eligible))})"
            )
        self.mark = f"""
            WITH fence AS MATERIALIZED (
                SELECT set_config('synchronous_commit', 'off', true) FROM {fence} WHERE {_HELD} FOR SHARE
            ), marked AS (
                UPDATE {outbox} SET leader_id = $6
                WHERE id = ANY (ARRAY(SELECT id FROM {outbox} WHERE {" AND ".join(wanted)} ORDER BY id LIMIT $7))
                  AND EXISTS (SELECT FROM fence)
                RETURNING id, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values
            )
            SELECT marked.* FROM fence LEFT JOIN marked ON true"""
        self.purge = self._touch(fence, f"DELETE FROM {outbox}")
        self.reset = self._touch(fence, f"UPDATE {outbox} SET leader_id = NULL")
        self.bump_lock = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
        self.bump = f"""
            WITH next AS (
                SELECT coalesce(max(token), 0) + 1 AS token FROM {fence} WHERE name = $1
            ), numbered AS (
                SELECT lane FROM {fence} WHERE name = $1 UNION SELECT generate_series(0, $2::int - 1)
            )
            INSERT INTO {fence} AS f (name, lane, lanes, token, attempt, holder, since)
            SELECT $1, lane, $2, next.token, 0, $3, clock_timestamp() FROM numbered, next ORDER BY lane
            ON CONFLICT (name, lane) DO UPDATE
            SET lanes = excluded.lanes, token = excluded.token, attempt = 0, holder = excluded.holder,
                since = excluded.since, beat = NULL, reading = '{{}}'
            RETURNING f.token"""
        self.enter = f"""
            UPDATE {fence} SET attempt = attempt + 1
            WHERE name = $1 AND lane = $2 AND lanes = $3 AND token = $4 RETURNING attempt"""
        self.beat = (
            f"UPDATE {fence} SET beat = clock_timestamp(), reading = $6::jsonb WHERE {_HELD} RETURNING lane"
        )
        self.holdings = f"""
            SELECT lane, lanes, token, attempt, holder, since, beat,
                   extract(epoch FROM clock_timestamp() - beat)::float8, reading
            FROM {fence} WHERE name = $1 AND lane < lanes ORDER BY lane"""
        self.count = f"SELECT count(*) FROM (SELECT FROM {outbox} LIMIT $1) AS sample"
        self.oldest = f"""
            SELECT id, extract(epoch FROM clock_timestamp() - create_time)::float8
            FROM {outbox} ORDER BY id LIMIT 1"""
        self.newest = f"SELECT id FROM {outbox} ORDER BY id DESC LIMIT 1"

    @staticmethod
    def _touch(fence: TableName, change: str) -> str:
        return f"""
            WITH fence AS MATERIALIZED (
                SELECT FROM {fence} WHERE {_HELD}
            ), touched AS (
                {change} WHERE id = ANY ($7::bigint[]) AND leader_id = $6 AND EXISTS (SELECT FROM fence)
                RETURNING id
            )
            SELECT (SELECT count(*) FROM touched) FROM fence"""


ESTIMATE = """
SELECT greatest(pg_stat_get_live_tuples(c.oid),
                CASE WHEN c.relpages > 0 AND c.reltuples > 0
                     THEN (c.reltuples / c.relpages * pg_relation_size(c.oid)
                           / current_setting('block_size')::int)::bigint END)
FROM pg_class AS c WHERE c.oid = $1::regclass
"""
"""How many rows the table $1 has by the server's own bookkeeping."""


def parameters(eligible: Sequence[Condition]) -> tuple[str, ...]:
    """Returns the values of conditions, as text whose type the server takes from the column."""
    return tuple(str(c.value) if isinstance(c, ColumnIs) else str(c.seconds) for c in eligible)


def _condition(condition: Condition, number: int) -> str:
    if isinstance(condition, ColumnIs):
        return f"{TableName('', condition.column)} = ${number}"
    return f"create_time < clock_timestamp() - make_interval(secs => ${number}::float8)"


def outbox_ddl(outbox: TableName, value_type: str, fillfactor: int) -> str:
    """Returns the statement that creates the outbox in the layout of the seed (document 001)."""
    return f"""CREATE TABLE IF NOT EXISTS {outbox} (
    id BIGSERIAL PRIMARY KEY,
    create_time TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT clock_timestamp(),
    kafka_topic VARCHAR(249) NOT NULL,
    kafka_key TEXT NOT NULL,
    kafka_value {value_type.upper()},
    kafka_header_keys TEXT[] NOT NULL DEFAULT '{{}}',
    kafka_header_values TEXT[] NOT NULL DEFAULT '{{}}',
    leader_id UUID
) WITH (fillfactor = {fillfactor}, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000)"""


def fence_ddl(fence: TableName) -> str:
    """Returns the statement that creates the fence table."""
    return f"""CREATE TABLE IF NOT EXISTS {fence} (
    name TEXT NOT NULL,
    lane INTEGER NOT NULL,
    lanes INTEGER NOT NULL,
    token BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    holder TEXT NOT NULL,
    since TIMESTAMP WITH TIME ZONE NOT NULL,
    beat TIMESTAMP WITH TIME ZONE,
    reading JSONB NOT NULL DEFAULT '{{}}',
    PRIMARY KEY (name, lane)
) WITH (fillfactor = 10)"""


def ddl(options: PostgresOptions) -> tuple[str, str]:
    """Returns the statements that create the outbox and its fence where they do not exist."""
    return (outbox_ddl(options.outbox, options.value_type, options.fillfactor), fence_ddl(options.fence))
