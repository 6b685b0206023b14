"""What ``outbox check`` reports about the tables: engine and columns."""
# ruff: noqa: S608 - names come quoted from the idiom, and every value is a parameter

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from outbox_api import Finding, Level
from outbox_api.portable import Session, TableName
from outbox_api.portable.days import Days
from outbox_api.portable.partitions import divided_outbox
from outbox_api.portable.tables import HARVESTED

from outbox_mysql.idiom import OF_TABLE
from outbox_mysql.options import MySqlOptions

_ENGINE = f"SELECT engine FROM information_schema.tables {OF_TABLE}"
_COLUMNS = (
    "SELECT column_name, data_type, character_set_name, character_maximum_length, column_default"
    f" FROM information_schema.columns {OF_TABLE}"
)
_INDEXES = (
    "SELECT index_name, GROUP_CONCAT(column_name ORDER BY seq_in_index)"
    f" FROM information_schema.statistics {OF_TABLE} GROUP BY index_name"
)
_TEXTS: Final = ("kafka_topic", "kafka_key", "kafka_value", "kafka_header_keys", "kafka_header_values")
_UUID: Final = 36


def _counted(session: Session, table: TableName) -> bool:
    return any(str(row[0]).lower() == "id" and row[2] for row in _ask(session, session.idiom.types, table))


class _Column(NamedTuple):
    type: str
    charset: str | None
    length: int | None
    default: str | None


def table_findings(session: Session, options: MySqlOptions) -> Iterator[Finding]:
    """Checks the tables that exist; the portable check reports those that do not."""
    for table in (getattr(options.tables, name) for name in HARVESTED):
        engine = _ask(session, _ENGINE, table)
        if not engine:
            continue
        if str(engine[0][0]).lower() != "innodb":
            cure = f"ALTER TABLE {table} ENGINE = InnoDB"
            yield Finding(
                Level.ERROR, "engine", f"'{table}' is kept by {engine[0][0]}, without transactions", cure
            )
        if table == options.outbox:
            yield from _outbox(session, options)


def _ask(session: Session, sql: str, table: TableName) -> Sequence[Sequence[Any]]:
    return session.query(f"look at table {table}", sql, **session.idiom.place(table))


def _outbox(session: Session, options: MySqlOptions) -> Iterator[Finding]:
    table = options.outbox
    columns = {str(row[0]).lower(): _Column(*row[1:]) for row in _ask(session, _COLUMNS, table)}
    indexes = {str(name): str(listed).lower() for name, listed in _ask(session, _INDEXES, table)}
    key = indexes.get("PRIMARY", "none")
    # Where it is partitioned no index can say that an id is there once; the counter gives none out again.
    by_day = bool(Days(session, divided_outbox(table)).found()) and _counted(session, table)
    if key != "id" and not (by_day and key == "id,create_time"):
        seen = f"its primary key is {key}"
        cure = f"ALTER TABLE {table} …, ADD PRIMARY KEY (id)"
        yield Finding(Level.ERROR, "primary key", f"'{table}' needs the primary key (id); {seen}", cure)
    if named := [name for name, listed in indexes.items() if "leader_id" in listed.split(",")]:
        cure = f"DROP INDEX {named[0]} ON {table}"
        yield Finding(Level.WARNING, "leader_id", "an index on it makes each mark write twice", cure)
    leader = columns.get("leader_id")
    if (
        leader
        and leader.type != "uuid"
        and not (leader.type.endswith("char") and (leader.length or 0) >= _UUID)
    ):
        cure = f"ALTER TABLE {table} MODIFY leader_id CHAR(36) CHARACTER SET ascii"
        yield Finding(Level.ERROR, "leader_id", f"its type is {leader.type}", cure)
    created = columns.get("create_time")
    if created and created.default is None:
        cure = f"ALTER TABLE {table} ALTER create_time SET DEFAULT (UTC_TIMESTAMP(6))"
        yield Finding(Level.ERROR, "create_time", "it has no default, which stashing leaves it to", cure)
    narrow = [name for name in _TEXTS if name in columns and columns[name].charset not in (None, "utf8mb4")]
    if narrow:
        message = f"{', '.join(narrow)} cannot hold every text: {columns[narrow[0]].charset}"
        cure = f"ALTER TABLE {table} CONVERT TO CHARACTER SET utf8mb4"
        yield Finding(Level.WARNING, "character set", message, cure)
    value = columns.get("kafka_value")
    if value and options.binary != (value.type.endswith(("blob", "binary"))):
        holds = "text" if options.binary else "bytes"
        message = f"kafka_value is {value.type} and valueType is {options.value_type}"
        yield Finding(Level.WARNING, "value type", message, f"set valueType: {holds}")
