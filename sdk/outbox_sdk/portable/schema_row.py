"""The row of a fence that notes the version of an outbox's tables."""
# ruff: noqa: S608 - names and texts come quoted from the idiom, and all else is numbers of our own

from __future__ import annotations

from outbox_sdk.portable.columns import SCHEMA_LANE, schema_name
from outbox_sdk.portable.idiom import Idiom
from outbox_sdk.portable.names import TableName
from outbox_sdk.portable.session import Session
from outbox_sdk.portable.sources import quoted
from outbox_sdk.schema import OLDEST, SCHEMA, Schema


def schema_query(idiom: Idiom, fence: TableName) -> str:
    """Writes the query for what is noted under ``{name}``: the version, and the oldest one that it allows."""
    seen = idiom.snapshot_read(quoted(idiom, fence))
    return f"SELECT token, attempt FROM {seen} WHERE name = {{name}} AND lane = {SCHEMA_LANE}"


def read_schema(session: Session, fence: TableName, outbox: TableName) -> Schema | None:
    """Returns what is noted about the tables of an outbox; ``None`` if nothing is."""
    query, name = schema_query(session.idiom, fence), schema_name(str(outbox))
    rows = session.query("read the version of the tables", query, name=name)
    return Schema(*map(int, rows[0])) if rows else None


def note_schema(idiom: Idiom, fence: TableName, name: str, holder: str, former: Schema | None) -> str:
    """Writes the statement that notes this version's tables, without parameters.

    Args:
        idiom: How the database writes SQL.
        fence: The fence table.
        name: The row's name, in SQL.
        holder: Who notes it.
        former: What is noted.
    """
    table, who = idiom.quote_table(fence), idiom.literal(holder)
    if former:
        return (
            f"UPDATE {table} SET token = {SCHEMA}, attempt = {OLDEST}, holder = {who}, since = {idiom.now}"
            f" WHERE name = {name} AND lane = {SCHEMA_LANE} AND token < {SCHEMA}"
        )
    identity = idiom.quote("identity")
    return (
        f"INSERT INTO {table}"
        f" (name, lane, lanes, token, attempt, holder, since, reading, transacting, {identity})"
        f" VALUES ({name}, {SCHEMA_LANE}, 0, {SCHEMA}, {OLDEST}, {who}, {idiom.now}, '{{}}', 0, 'none')"
    )
