"""The database servers of a run, and what differs between them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import psycopg
from outbox_mysql.idiom import outbox
from outbox_servers.services import PostgresServer, external
from outbox_servers.services.mysql import MariaDbServer, MySqlServer
from outbox_servers.services.postgres_binaries import find_binaries, local_binaries, major_version
from psycopg import sql
from psycopg.conninfo import make_conninfo

POSTGRES, MYSQL, MARIADB = DATABASES = ("postgres", "mysql", "mariadb")
SUBJECT = "subject"
"""The account of whatever is measured: its statements are told from those of this program by it."""

SEED_DDL = """
CREATE TABLE outbox (
    id BIGSERIAL PRIMARY KEY,
    create_time TIMESTAMP WITH TIME ZONE NOT NULL,
    kafka_topic VARCHAR(249) NOT NULL,
    kafka_key VARCHAR(100) NOT NULL,
    kafka_value VARCHAR(10000),
    kafka_header_keys TEXT[] NOT NULL,
    kafka_header_values TEXT[] NOT NULL,
    leader_id UUID
)"""
"""The table as goharvest's README creates it; ``outbox init`` creates ours instead where it is missing."""

_STATEMENTS = """
    SELECT coalesce(sum(calls), 0), coalesce(sum(total_exec_time), 0)
    FROM pg_stat_statements AS s JOIN pg_roles AS r ON r.oid = s.userid
    WHERE r.rolname = %s AND s.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
_SYNCS_BEFORE_18 = "SELECT wal_sync FROM pg_stat_wal"
_SYNCS = "SELECT sum(fsyncs) FROM pg_stat_io WHERE object = 'wal'"
_FIRST_WITH_IO = 180000
_BINARY_LOG = {"log-bin": "binlog", "binlog-format": "ROW", "server-id": "1", "sync-binlog": "1"}
"""Only Debezium needs a log of rows. MySQL has it by default; MariaDB neither it nor its durability."""


class Postgres(PostgresServer):
    """PostgreSQL.

    Attributes:
        name: The database's name on the command line, and in that of Debezium's connector.
        driver: The driver of its dialect.
        ddl: Creates the outbox.
        numbers: A list of ``g``, from 1 to the number in the braces, for a FROM.
        headers: The headers of a row.
        tidying: Statements after which measurements do not depend on each other.
        inserted: Statements at the end of the transaction that writes a backlog.
        streams: Finds a row if Debezium reads the log for the database in the braces.
    """

    name: ClassVar[str] = POSTGRES
    driver: ClassVar[str] = "postgres"
    ddl: ClassVar[str] = SEED_DDL
    numbers: ClassVar[str] = "generate_series(1::bigint, {}) AS g"
    headers: ClassVar[str] = "'{h}', '{v}'"
    tidying: ClassVar[tuple[str, ...]] = ("VACUUM outbox", "CHECKPOINT")
    # Otherwise a statement that was planned for an empty table compares all rows with each other until
    # autovacuum comes by, which says nothing about any candidate.
    inserted: ClassVar[tuple[str, ...]] = ("ANALYZE outbox",)
    streams: ClassVar[str] = "SELECT 1 FROM pg_replication_slots WHERE database = '{}' AND active"

    def __init__(self, binaries: Path, settings: Mapping[str, str]) -> None:
        needed = {"wal_level": "logical", **settings}
        self._counts_statements = _has_statement_counts(binaries)
        if self._counts_statements:
            needed["shared_preload_libraries"] = "pg_stat_statements"
        super().__init__(binaries=binaries, settings=needed)
        self._subject = secrets.token_hex(8)

    def __enter__(self) -> Self:
        super().__enter__()
        # What is created in the template is in every database that is created later.
        with self.session("template1") as connection:
            create = sql.SQL("CREATE ROLE {} SUPERUSER LOGIN PASSWORD {}")
            connection.execute(create.format(sql.Identifier(SUBJECT), sql.Literal(self._subject)))
            if self._counts_statements:
                connection.execute("CREATE EXTENSION pg_stat_statements")
        return self

    def session(self, database: str) -> Any:
        """Connects as this program, in autocommit mode."""
        return psycopg.connect(self.dsn_of(database), autocommit=True)

    def make(self, database: str) -> str:
        """Creates a database; returns a candidate's connection string."""
        return make_conninfo(self.create_database(database), user=SUBJECT, password=self._subject)

    def drop(self, database: str) -> None:
        """Drops a database, with replication slots and sessions."""
        slots = "SELECT slot_name, active_pid FROM pg_replication_slots WHERE database = %s"
        with self.session("postgres") as connection:
            for slot, pid in connection.execute(slots, (database,)).fetchall():
                if pid is not None:
                    connection.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
                connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
        self.drop_database(database)

    def version(self) -> str:
        """Returns the server's version."""
        with self.session("postgres") as connection:
            return str(connection.execute("SHOW server_version").fetchone()[0])

    def counters(self, connection: Any) -> dict[str, float]:
        """Returns ``wal B``, its ``syncs``, and if the server counts them ``statements`` of the subject.

        Beside them are ``statements ms``, the time that the server spent in them.
        """
        is_new = connection.info.server_version >= _FIRST_WITH_IO
        found = {
            "wal B": connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchone()[0],
            "syncs": connection.execute(_SYNCS if is_new else _SYNCS_BEFORE_18).fetchone()[0],
        }
        if self._counts_statements:
            row = connection.execute(_STATEMENTS, (SUBJECT,)).fetchone()
            found |= {"statements": row[0], "statements ms": row[1]}
        return {name: float(number or 0) for name, number in found.items()}


class _WithBinaryLog(external.MySql):
    """What MySQL and MariaDB have in common; as :class:`Postgres`."""

    driver: ClassVar[str] = "mysql"
    ddl: ClassVar[str] = outbox("outbox", binary=False)
    numbers: ClassVar[str] = (
        "JSON_TABLE(CONCAT('[', REPEAT('0,', {} - 1), '0]'), '$[*]' COLUMNS (g FOR ORDINALITY)) AS numbers"
    )
    headers: ClassVar[str] = """'["h"]', '["v"]'"""
    tidying: ClassVar[tuple[str, ...]] = ()
    inserted: ClassVar[tuple[str, ...]] = ()
    streams: ClassVar[str] = "SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"

    def session(self, database: str) -> Any:
        """Connects as this program, in autocommit mode."""
        return self.connect(database=database, autocommit=True)

    def make(self, database: str) -> str:
        """Creates a database; returns a candidate's connection string."""
        return self.create_database(database)

    def drop(self, database: str) -> None:
        """Drops a database, with sessions and readers of the log."""
        with self.session("mysql") as connection, connection.cursor() as cursor:
            cursor.execute(self.streams)
            for (reader,) in cursor.fetchall():
                cursor.execute("KILL %s", [reader])
        self.drop_database(database)

    def version(self) -> str:
        """Returns the server's version."""
        with self.session("mysql") as connection:
            return str(connection.get_server_info())

    def counters(self, connection: Any) -> dict[str, float]:
        """Returns ``wal B``, InnoDB's redo log, and ``binlog B``."""
        with connection.cursor() as cursor:
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Innodb_os_log_written'")
            [(_, written)] = cursor.fetchall()
            cursor.execute("SHOW BINARY LOGS")
            return {"wal B": float(written), "binlog B": float(sum(row[1] for row in cursor.fetchall()))}


class MySql(_WithBinaryLog, MySqlServer):
    """MySQL."""

    name: ClassVar[str] = MYSQL


class MariaDb(_WithBinaryLog, MariaDbServer):
    """MariaDB."""

    name: ClassVar[str] = MARIADB


Database = Postgres | MySql | MariaDb


def database(name: str, postgres: str, settings: Mapping[str, str]) -> Database:
    """Returns a server that is not started.

    Args:
        name: One of :data:`DATABASES`.
        postgres: ``local`` (else embedded), ``embedded``, or a folder with PostgreSQL's programs.
        settings: Settings in addition to the server's defaults and those that Debezium needs.
    """
    if name == POSTGRES:
        return Postgres(_binaries(postgres), settings)
    logging = {**_BINARY_LOG, **settings}
    return MySql(settings=logging) if name == MYSQL else MariaDb(settings=logging)


def _binaries(postgres: str) -> Path:
    if postgres == "local":
        return local_binaries() or find_binaries()
    return find_binaries() if postgres == "embedded" else Path(postgres)


def _has_statement_counts(binaries: Path) -> bool:
    """Returns whether this PostgreSQL has the extension that counts statements."""
    shared = [binaries.parent / "share", Path("/usr/share/postgresql") / str(major_version(binaries))]
    return any(list(each.glob("**/pg_stat_statements.control")) for each in shared if each.is_dir())
