"""The tables of an outbox in SQL Server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from outbox_sdk.portable import Idiom, TableName
from outbox_sdk.portable.columns import SCHEMA_LANE

from outbox_sqlserver.idiom import BINARY, KEY_LENGTH
from outbox_sqlserver.options import SqlServerOptions


def tables(options: SqlServerOptions, idiom: Idiom) -> Mapping[TableName, Sequence[str]]:
    """Returns the statements that create outbox, fence and dead letters, in this order, by table."""
    value = "VARBINARY(MAX)" if options.binary else "NVARCHAR(MAX)"
    outbox = f"""CREATE TABLE {idiom.quote_table(options.outbox)} (
    id BIGINT IDENTITY(1, 1) NOT NULL,
    create_time DATETIME2(6) NOT NULL DEFAULT SYSUTCDATETIME(),
    kafka_topic NVARCHAR(249) NOT NULL,
    kafka_key NVARCHAR({KEY_LENGTH}) COLLATE {BINARY} NOT NULL,
    kafka_value {value},
    kafka_header_keys NVARCHAR(MAX),
    kafka_header_values NVARCHAR(MAX),
    leader_id UNIQUEIDENTIFIER,
    PRIMARY KEY (id)
);
{_no_escalation(idiom.quote_table(options.outbox))}"""
    fence = f"""CREATE TABLE {idiom.quote_table(options.fence)} (
    name NVARCHAR(300) COLLATE {BINARY} NOT NULL,
    lane INT NOT NULL,
    lanes INT NOT NULL,
    token BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    holder NVARCHAR(2000) NOT NULL,
    since DATETIME2(6) NOT NULL,
    beat DATETIME2(6),
    reading NVARCHAR(MAX) NOT NULL,
    transacting INT NOT NULL,
    {idiom.quote("identity")} NVARCHAR(64) NOT NULL,
    sender {idiom.short_text_type},
    marker_place {idiom.short_text_type},
    PRIMARY KEY (name, lane)
);
{_no_escalation(idiom.quote_table(options.fence))}"""
    letters = f"""CREATE TABLE {idiom.quote_table(options.dead_letters)} (
    name NVARCHAR(300) COLLATE {BINARY} NOT NULL,
    id BIGINT NOT NULL,
    kafka_topic NVARCHAR(MAX),
    kafka_key NVARCHAR({KEY_LENGTH}) COLLATE {BINARY},
    kafka_value VARBINARY(MAX),
    kafka_header_keys NVARCHAR(MAX),
    kafka_header_values NVARCHAR(MAX),
    fate NVARCHAR(10) NOT NULL CHECK (fate IN (N'parked', N'skipped')),
    reason NVARCHAR(MAX) NOT NULL,
    attempts INT NOT NULL,
    since DATETIME2(6) NOT NULL,
    PRIMARY KEY (name, id)
)"""
    return {options.outbox: [outbox], options.fence: [fence], options.dead_letters: [letters]}


def guarded(table: str, statement: str) -> str:
    """Returns a statement that does nothing if the table, whose name is quoted, exists."""
    name = table.replace("'", "''")
    return f"IF OBJECT_ID(N'{name}', N'U') IS NULL\nBEGIN\n{statement}\nEND"


def noted_once(fence: str, name: str, statement: str) -> str:
    """Returns the INSERT of a fence's row about the version, which does nothing if there is such a row.

    Args:
        fence: The fence, quoted.
        name: The name of the row, in SQL.
        statement: The INSERT.
    """
    there = f"SELECT 1 FROM {fence} WHERE name = {name} AND lane = {SCHEMA_LANE}"  # noqa: S608 - quoted
    return f"IF NOT EXISTS ({there})\n{statement}"


def _no_escalation(table: str) -> str:
    """Returns the statement that prevents lock escalation: no INSERT waits for a large change."""
    return f"ALTER TABLE {table} SET (LOCK_ESCALATION = DISABLE)"
