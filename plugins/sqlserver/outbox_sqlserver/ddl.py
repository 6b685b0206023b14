"""The outbox in SQL Server, and how its tables are created once."""

from __future__ import annotations

from collections.abc import Sequence

from outbox_sqlserver.idiom import BINARY, KEY_LENGTH


def outbox_statements(table: str, *, binary: bool) -> Sequence[str]:
    """Returns the statements that create the outbox; ``table`` is quoted."""
    value = "VARBINARY(MAX)" if binary else "NVARCHAR(MAX)"
    outbox = f"""CREATE TABLE {table} (
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
{_no_escalation(table)}"""
    return [outbox]


def guarded(table: str, statement: str) -> str:
    """Returns a statement that does nothing if the table, whose name is quoted, exists."""
    name = table.replace("'", "''")
    return f"IF OBJECT_ID(N'{name}', N'U') IS NULL\nBEGIN\n{statement}\nEND"


def noted_once(notes: str, name: str, statement: str) -> str:
    """Returns the INSERT that notes the version, which does nothing if there is a row for the outbox.

    Args:
        notes: The table of notes, quoted.
        name: The outbox's name, in SQL.
        statement: The INSERT.
    """
    return f"IF NOT EXISTS (SELECT 1 FROM {notes} WHERE name = {name})\n{statement}"  # noqa: S608 - quoted


def _no_escalation(table: str) -> str:
    """Returns the statement that prevents lock escalation: no INSERT waits for a large change."""
    return f"ALTER TABLE {table} SET (LOCK_ESCALATION = DISABLE)"
