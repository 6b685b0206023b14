"""The tables of earlier versions, and the statements that the first one sent to them."""

from __future__ import annotations

import psycopg

from .outbox_hands import Outbox, ask

OUTBOX = """
CREATE TABLE outbox (
    id BIGSERIAL PRIMARY KEY,
    create_time TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT clock_timestamp(),
    kafka_topic VARCHAR(249) NOT NULL,
    kafka_key TEXT NOT NULL,
    kafka_value TEXT,
    kafka_header_keys TEXT[] NOT NULL DEFAULT '{}',
    kafka_header_values TEXT[] NOT NULL DEFAULT '{}',
    leader_id UUID
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000)
"""
FENCE = """
CREATE TABLE outbox_fence (
    name TEXT NOT NULL,
    lane INTEGER NOT NULL,
    lanes INTEGER NOT NULL,
    token BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    holder TEXT NOT NULL,
    since TIMESTAMP WITH TIME ZONE NOT NULL,
    beat TIMESTAMP WITH TIME ZONE,
    reading JSONB NOT NULL DEFAULT '{}',
    PRIMARY KEY (name, lane)
) WITH (fillfactor = 10)
"""
LETTERS = """
CREATE TABLE outbox_dead_letters (
    name TEXT NOT NULL,
    id BIGINT NOT NULL,
    kafka_topic TEXT,
    kafka_key TEXT,
    kafka_value BYTEA,
    kafka_header_keys TEXT[],
    kafka_header_values TEXT[],
    fate TEXT NOT NULL CHECK (fate IN ('parked', 'skipped')),
    reason TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    since TIMESTAMP WITH TIME ZONE NOT NULL,
    PRIMARY KEY (name, id)
);
CREATE INDEX outbox_dead_letters_parked ON outbox_dead_letters (name, since) WHERE fate = 'parked'
"""
_RANDOM = "encode(substr(sha256((random()::text || clock_timestamp())::bytea), 1, 16), 'hex')::uuid"
_ADD = "ALTER TABLE outbox_fence ADD COLUMN"
_STEPS = {
    "first": [OUTBOX, FENCE],
    "parking": [LETTERS, f"{_ADD} releases BIGINT NOT NULL DEFAULT 0"],
    "transactions": [f"{_ADD} transacting INTEGER NOT NULL DEFAULT 0"],
    "identities": [f"{_ADD} identity UUID NOT NULL DEFAULT {_RANDOM}"],
    "places": [f"{_ADD} sender TEXT NOT NULL DEFAULT ''", f"{_ADD} marker_place TEXT NOT NULL DEFAULT ''"],
    "leases": ["CREATE SEQUENCE outbox_lease"],
}
"""Each version, with what its tables had beyond those of the one before."""

VERSIONS = tuple(_STEPS)
COMPLETE = ("places", "leases")
"""Versions whose tables have all columns, and lack the note."""

NAME = "public.outbox"

# What the first version sends to outbox and fence.
BUMP = """
WITH next AS (
    SELECT coalesce(max(token), 0) + 1 AS token FROM outbox_fence WHERE name = %(name)s
), numbered AS (
    SELECT lane FROM outbox_fence WHERE name = %(name)s UNION SELECT generate_series(0, %(lanes)s - 1)
)
INSERT INTO outbox_fence AS f (name, lane, lanes, token, attempt, holder, since)
SELECT %(name)s, lane, %(lanes)s, next.token, 0, 'former', clock_timestamp() FROM numbered, next ORDER BY lane
ON CONFLICT (name, lane) DO UPDATE
SET lanes = excluded.lanes, token = excluded.token, attempt = 0, holder = excluded.holder,
    since = excluded.since, beat = NULL, reading = '{}'
RETURNING f.token
"""
ENTER = """
UPDATE outbox_fence SET attempt = attempt + 1
WHERE name = %(name)s AND lane = 0 AND lanes = %(lanes)s AND token = %(token)s RETURNING attempt
"""
_HELD = "name = %(name)s AND lane = 0 AND lanes = %(lanes)s AND token = %(token)s AND attempt = %(attempt)s"
MARK = f"""
WITH fence AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'off', true) FROM outbox_fence WHERE {_HELD} FOR SHARE
), chosen AS MATERIALIZED (
    SELECT ARRAY(SELECT id FROM outbox WHERE id >= 0 AND (leader_id IS NULL OR leader_id <> %(leader)s)
                 ORDER BY id LIMIT 100) AS ids FROM fence
), marked AS (
    UPDATE outbox SET leader_id = %(leader)s WHERE id = ANY ((SELECT ids FROM chosen)::bigint[])
    RETURNING id, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values
)
SELECT marked.*, cardinality(ids) FROM chosen JOIN marked ON true
"""
PURGE = f"""
WITH fence AS MATERIALIZED (
    SELECT FROM outbox_fence WHERE {_HELD}
), touched AS (
    DELETE FROM outbox WHERE id = ANY (%(ids)s) AND leader_id = %(leader)s AND EXISTS (SELECT FROM fence)
    RETURNING id
)
SELECT (SELECT count(*) FROM touched) FROM fence
"""
BEAT = f"""
UPDATE outbox_fence SET beat = clock_timestamp(), reading = '{{"purged": 1}}' WHERE {_HELD} RETURNING lane
"""


def make(box: Outbox, version: str) -> None:
    """Makes the tables of a version, with two lanes that it led, 30 rows of ten keys, and a parked key."""
    for statement in statements_of(version):
        box.admin.execute(statement.encode())
    box.admin.execute(BUMP, {"name": NAME, "lanes": 2})
    box.fill(30)
    if version != "first":
        box.admin.execute(
            "INSERT INTO outbox_dead_letters SELECT %s, id, kafka_topic, kafka_key, kafka_value::bytea,"
            " kafka_header_keys, kafka_header_values, 'parked', 'too large', 5, now() FROM outbox"
            " WHERE kafka_key = 'k1' ORDER BY id LIMIT 1",
            (NAME,),
        )


def statements_of(version: str) -> list[str]:
    """Returns what creates the tables of a version."""
    steps = VERSIONS[: VERSIONS.index(version) + 1]
    return [statement for step in steps for statement in _STEPS[step]]


class FirstVersion:
    """A leader of the first version: one lane of one, its statements prepared.

    Args:
        connection: Its connection, in autocommit mode.
        leader: Its leader id.
    """

    def __init__(self, connection: psycopg.Connection, leader: str) -> None:
        connection.prepare_threshold = 0
        self._connection = connection
        self._values: dict[str, object] = {"name": NAME, "lanes": 1, "leader": leader}

    def lead(self) -> int:
        """Raises the token and enters the lane; returns the token."""
        token = int(ask_by_name(self._connection, BUMP, self._values))
        self._values["token"] = token
        self._values["attempt"] = ask_by_name(self._connection, ENTER, self._values)
        return token

    def mark(self) -> list[int]:
        """Marks, writes a heartbeat, and returns the ids."""
        ids = [row[0] for row in self._connection.execute(MARK, self._values).fetchall()]
        self._connection.execute(BEAT, self._values)
        return sorted(ids)

    def purge(self, ids: list[int]) -> int:
        """Deletes rows that it has marked; returns how many."""
        rows = self._connection.execute(PURGE, {**self._values, "ids": ids}).fetchall()
        return int(rows[0][0]) if rows else 0


def ask_by_name(connection: psycopg.Connection, question: str, values: dict[str, object]) -> int:
    row = connection.execute(question.encode(), values).fetchone()
    assert row is not None
    return int(row[0])


def columns_of_fence(box: Outbox) -> list[str]:
    found: list[str] = ask(
        box.admin,
        "SELECT array_agg(attname::text ORDER BY attname) FROM pg_attribute"
        " WHERE attrelid = 'outbox_fence'::regclass AND attnum > 0 AND NOT attisdropped",
    )
    return found
