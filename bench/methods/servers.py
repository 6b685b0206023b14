"""The databases of the histories."""

from __future__ import annotations

from typing import Any

import psycopg
import pymysql
from outbox_servers.services.external import MySql
from psycopg import sql

from bench.methods.tailing import SLOT

POSTGRES = """
DROP SCHEMA public CASCADE; CREATE SCHEMA public;
CREATE TABLE outbox (id bigserial PRIMARY KEY, kafka_key text, kafka_value text,
created double precision, leader_id uuid, xid xid8 DEFAULT pg_current_xact_id());
"""
MYSQL = (
    "DROP TABLE IF EXISTS outbox, reached",
    """CREATE TABLE outbox (id bigint PRIMARY KEY AUTO_INCREMENT, kafka_key text, kafka_value text,
    created double)""",
)


INSERT = "INSERT INTO outbox (kafka_key, kafka_value, created) VALUES (%(key)s, %(value)s, %(created)s)"


class PostgresHistories:
    """PostgreSQL; its log has what logical decoding needs (``wal_level=logical``)."""

    errors = psycopg.Error
    insert = INSERT

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._admin = self.connect()

    def connect(self) -> Any:
        """Connects, in autocommit mode."""
        return psycopg.connect(self._dsn, autocommit=True, options="-c lock_timeout=2s")

    def close(self) -> None:
        """Disconnects."""
        self._admin.close()

    def reset(self, ddl: str) -> None:
        """Makes an empty outbox."""
        self._drop_slot()
        self._admin.execute(POSTGRES + ddl)

    def save(self) -> dict[str, tuple[list[Any], int | None]]:
        """Returns table → its rows, and where its sequence is."""
        tables = self._admin.execute("SELECT relname FROM pg_stat_user_tables").fetchall()
        return {name: self._saved(name) for (name,) in tables}

    def restore(self, saved: dict[str, tuple[list[Any], int | None]]) -> None:
        """Makes the database what it was; a replication slot is not in a backup."""
        self._drop_slot()
        with self._admin.transaction():
            self._admin.execute("SET LOCAL session_replication_role = replica")  # no trigger
            for name, (rows, last) in saved.items():
                table = sql.Identifier(name)
                self._admin.execute(sql.SQL("TRUNCATE {}").format(table))
                for row in rows:
                    query = sql.SQL("INSERT INTO {0} SELECT * FROM json_populate_record(NULL::{0}, %s)")
                    self._admin.execute(query.format(table), (row,))
                if last is not None:
                    self._admin.execute("SELECT setval(%s, %s, true)", (_sequence(name), last))

    def _saved(self, name: str) -> tuple[list[Any], int | None]:
        table = sql.Identifier(name)
        rows = self._admin.execute(sql.SQL("SELECT row_to_json(t)::text FROM {} t").format(table)).fetchall()
        query = "SELECT last_value FROM pg_sequences WHERE sequencename = %s"
        found = self._admin.execute(query, (_sequence(name),)).fetchone()
        return [row for (row,) in rows], found[0] if found else None

    def _drop_slot(self) -> None:
        slots = "SELECT slot_name FROM pg_replication_slots WHERE slot_name = %s"
        self._admin.execute(f"SELECT pg_drop_replication_slot(slot_name) FROM ({slots}) s", (SLOT,))


def _sequence(table: str) -> str:
    return f"{table}_{'seq' if table == 'captured' else 'id'}_seq"


class ProductHistories(PostgresHistories):
    """A database with this project's tables, which stay: its harvesters go on from history to history.

    Args:
        dsn: The database.
        topic: The topic of all records.
    """

    def __init__(self, dsn: str, topic: str) -> None:
        super().__init__(dsn)
        self.insert = (
            f"INSERT INTO outbox (kafka_topic, kafka_key, kafka_value) VALUES ('{topic}', %(key)s, %(value)s)"
        )

    def reset(self, ddl: str) -> None:
        """Leaves the tables as they are; keys of other histories do not matter."""


class MySqlHistories:
    """MySQL."""

    errors = pymysql.Error
    insert = INSERT

    def __init__(self, server: MySql) -> None:
        self._server = server
        server.create_database("methods")
        self._admin = self.connect()

    def connect(self) -> Any:
        """Connects, in autocommit mode."""
        return self._server.connect(autocommit=True, database="methods")

    def close(self) -> None:
        """Disconnects."""
        self._admin.close()

    def reset(self, ddl: str) -> None:
        """Makes an empty outbox."""
        with self._admin.cursor() as cursor:
            for statement in (*MYSQL, *filter(str.strip, ddl.split(";"))):
                cursor.execute(statement)

    def save(self) -> None:
        """Is not there: histories with a restore are PostgreSQL's."""

    def restore(self, saved: Any) -> None:
        """Is not there."""
