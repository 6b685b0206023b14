"""The tables of an outbox, as SQL."""

from __future__ import annotations

from outbox_postgres.options import PostgresOptions, TableName


def ddl(options: PostgresOptions) -> tuple[str, str]:
    """Returns the statements that create the outbox and its fence where they do not exist."""
    return (outbox_ddl(options), fence_ddl(options.fence))


def outbox_ddl(options: PostgresOptions) -> str:
    """Returns the statement that creates the outbox, in the column layout of the seed (document 001).

    Key and value are of any length; the seed's lengths are the user's to set. There is no index on the leader
    id and there is room in each page, so that a mark writes no index entry.
    """
    return f"""CREATE TABLE IF NOT EXISTS {options.outbox} (
    id BIGSERIAL PRIMARY KEY,
    create_time TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT clock_timestamp(),
    kafka_topic VARCHAR(249) NOT NULL,
    kafka_key TEXT NOT NULL,
    kafka_value {options.value_type.upper()},
    kafka_header_keys TEXT[] NOT NULL DEFAULT '{{}}',
    kafka_header_values TEXT[] NOT NULL DEFAULT '{{}}',
    leader_id UUID
) WITH (
    fillfactor = {options.fillfactor},
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 20000
)"""


def fence_ddl(fence: TableName) -> str:
    """Returns the statement that creates the fence table.

    Its rows are few and written often; most of a page is kept free for their next versions.
    """
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
