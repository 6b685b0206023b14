"""How MySQL and MariaDB write what the SQL standard leaves open, their tables among it."""
# ruff: noqa: S608 - all is of constants, or comes quoted

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import ClassVar, Final

from outbox_api.base.record import Record
from outbox_api.portable import ErrorKind, Idiom, TableName
from outbox_api.portable.by_ids import ChangeByIds
from outbox_api.portable.partitions import Partitions
from outbox_api.portable.rows import spellings
from outbox_api.portable.table_idiom import UpkeepQueries
from outbox_api.support.statement import Style

from outbox_mysql.errors import cure, error_kind
from outbox_mysql.partitions import MySqlPartitions

KEY_BYTES: Final = 65_535
"""How long a key may be: as long as ``TEXT``."""

MAX_LISTED_BYTES: Final = 256 << 10
"""How long the keys may be together that a statement names as they are."""

# A binary collation; the dialect's statements compare keys byte for byte whatever the collation is.
TABLE_END: Final = "ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
# With a default as long as a leader id, a mark updates rows in place, which takes half the time.
_LEADER: Final = "CHAR(36) CHARACTER SET ascii COLLATE ascii_bin DEFAULT ''"


def outbox(table: str, *, binary: bool, by_day: bool = False) -> str:
    """Returns the statement that creates the outbox; ``table`` is quoted."""
    key, parts = ("id, create_time", MySqlPartitions().clause("create_time")) if by_day else ("id", "")
    return f"""CREATE TABLE {table} (
    id BIGINT NOT NULL AUTO_INCREMENT,
    create_time DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    kafka_topic VARCHAR(249) NOT NULL,
    kafka_key TEXT NOT NULL,
    kafka_value {"LONGBLOB" if binary else "LONGTEXT"},
    kafka_header_keys JSON,
    kafka_header_values JSON,
    leader_id {_LEADER},
    PRIMARY KEY ({key})
) {TABLE_END}{parts}"""


OF_TABLE = "WHERE table_schema = COALESCE(NULLIF({schema}, ''), DATABASE()) AND table_name = {table}"
"""Chooses what ``information_schema`` has of a table."""

MAY_SEE = "PROCESS"
"""The privilege that shows the transactions of other users."""


def age(started: str) -> str:
    """Writes the seconds since a time of ``innodb_trx``, which is in the server's zone, not the session's."""
    return f"TIMESTAMPDIFF(SECOND, {started}, CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', 'SYSTEM'))"


UPKEEP = UpkeepQueries(
    unit="transactions in the history list",
    dead=(
        "SELECT count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'",
        # What every user of MariaDB may see.
        """SELECT variable_value FROM information_schema.global_status
           WHERE variable_name = 'INNODB_HISTORY_LIST_LENGTH'""",
    ),
    # With READ COMMITTED a transaction keeps a view only while it executes a statement. Whatever the
    # isolation, others keep what has happened since its first change.
    snapshot=f"""
        SELECT CASE t.trx_mysql_thread_id WHEN 0 THEN 'an XA transaction that is prepared'
                    ELSE CONCAT('session ', t.trx_mysql_thread_id, ' (user ', COALESCE(p.user, '?'),
                                COALESCE(CONCAT(' at ', NULLIF(p.host, '')), ''), ')') END,
               GREATEST({age("t.trx_started")}, 0)
        FROM information_schema.innodb_trx t
        LEFT JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id
        WHERE t.trx_mysql_thread_id <> CONNECTION_ID()
          AND (t.trx_isolation_level <> 'READ COMMITTED' OR t.trx_rows_modified > 0
               OR t.trx_query IS NOT NULL)
        ORDER BY t.trx_started LIMIT 1""",
)


class MySqlIdiom(Idiom):
    """MySQL's and MariaDB's. A session has transactions on and isolation READ COMMITTED."""

    style: ClassVar[Style] = Style.PYFORMAT
    begin_watching: ClassVar[str] = "START TRANSACTION READ ONLY"
    brief_locks: ClassVar[str] = "SET SESSION lock_wait_timeout = 1, innodb_lock_wait_timeout = 1"
    now: ClassVar[str] = "UTC_TIMESTAMP(6)"
    # What MariaDB knows too, and MySQL takes for FOR SHARE.
    shared_lock: ClassVar[str] = " LOCK IN SHARE MODE"
    skip_locked: ClassVar[str] = " FOR UPDATE SKIP LOCKED"
    current_schema: ClassVar[str] = "DATABASE()"
    short_text_type: ClassVar[str] = "LONGTEXT"
    long_text_type: ClassVar[str] = "LONGTEXT"
    bytes_type: ClassVar[str] = "LONGBLOB"
    key_type: ClassVar[str] = "LONGBLOB"
    numbered_type: ClassVar[str] = "BIGINT NOT NULL AUTO_INCREMENT"
    partitions: ClassVar[Partitions | None] = MySqlPartitions()
    moment_type: ClassVar[str] = "DATETIME(6)"
    table_end: ClassVar[str] = f" {TABLE_END}"
    indexes: ClassVar[str] = (
        f"SELECT index_name, column_name FROM information_schema.statistics {OF_TABLE}"
        " ORDER BY index_name, seq_in_index"
    )
    defaults: ClassVar[str] = f"SELECT column_name, column_default FROM information_schema.columns {OF_TABLE}"
    view_query: ClassVar[str] = f"SELECT table_name FROM information_schema.views {OF_TABLE}"
    spelling: ClassVar[str] = f"SELECT table_schema, table_name FROM information_schema.tables {OF_TABLE}"
    types: ClassVar[str] = (
        "SELECT column_name, CONCAT(column_type, IF(extra LIKE '%on update%', ' on update', '')),"
        " extra LIKE '%auto_increment%', is_nullable = 'NO'"
        f" FROM information_schema.columns {OF_TABLE}"
    )
    second_digits: ClassVar[int] = 0
    upkeep: ClassVar[UpkeepQueries | None] = UPKEEP
    id_index: ClassVar[str] = "PRIMARY"
    unmarked: ClassVar[str] = "(leader_id IS NULL OR CHAR_LENGTH(leader_id) = 0)"
    # ALTER TABLE and LOCK TABLES wait for who reads, who would wait behind them to write: a deadlock.
    will_change: ClassVar[str] = " AND NOT EXISTS (SELECT 1 FROM {table} WHERE 1 = 0 FOR UPDATE)"
    time_text: ClassVar[str] = "CAST(create_time AS CHAR)"
    # ON DUPLICATE KEY UPDATE tells no new row from a known one where a connection counts what it finds.
    insert_new: ClassVar[tuple[str, str]] = ("INSERT IGNORE", "")
    # Thereby drivers can send many rows in one INSERT, which takes nothing but parameters.
    fills_create_time: ClassVar[bool] = True

    def instant(self, column: str, type_: str) -> str:
        """Writes a column of a type that knows the zone."""
        return column if type_.startswith("timestamp") else ""

    @property
    def errors(self) -> type[Exception]:
        """The driver's base class of errors."""
        from pymysql import MySQLError  # noqa: PLC0415 - loads the driver only when it is needed

        return MySQLError

    def error_kind(self, error: Exception) -> ErrorKind:
        """Returns what an error means, by its number."""
        return error_kind(error)

    def cure(self, error: Exception) -> str:
        """Returns what a user can do about an error; empty if there is no advice."""
        return cure(error)

    def quote(self, name: str) -> str:
        """Quotes an identifier, whatever the session's SQL mode."""
        return "`" + name.replace("`", "``") + "`"

    def literal(self, text: str) -> str:
        """Writes a text as a constant, in which backslashes escape."""
        return super().literal(text.replace("\\", "\\\\"))

    def known_as(self, table: TableName) -> str:
        """Writes a text: a table's name with its database."""
        if table.schema:
            return super().known_as(table)
        return f"CONCAT(DATABASE(), {self.literal('.' + table.table)})"

    def age_seconds(self, timestamp: str) -> str:
        """Writes the seconds since a timestamp."""
        return f"TIMESTAMPDIFF(MICROSECOND, {timestamp}, {self.now}) / 1000000"

    def comparable(self, text: str) -> str:
        """Writes the digest of a text's bytes in UTF-8, whatever the column's character set and collation.

        Bytes, which need not be UTF-8, are taken as they are.

        No two texts are known that share one. Short as it is, the servers look parked keys up in an index; of
        columns that may hold more than 512 bytes they would compare each with each.
        """
        return f"UNHEX(SHA2({self.to_utf8(text)}, 256))"

    def to_utf8(self, column: str) -> str:
        """Writes a text, of whatever character set, or bytes as bytes."""
        return f"IF(CHARSET({column}) = 'binary', {column}, CONVERT({column} USING utf8mb4))"

    def from_utf8(self, column: str, *, binary: bool) -> str:
        """Writes bytes, which are UTF-8, as text, unless bytes are wanted."""
        return column if binary else f"CONVERT({column} USING utf8mb4)"

    def matches(self, column: str, pattern: str) -> str:
        """Writes that a text matches a pattern, whatever the collation."""
        return super().matches(f"CAST({column} AS BINARY)", pattern)

    def not_in(self, key: str, keys: Sequence[str]) -> tuple[str, Mapping[str, object]]:
        """Writes that a key is none of ``keys``, by their bytes: one parameter, which is a list.

        A mark reads all rows of busy keys, and digests would take as long as all else. Keys that together
        would make a statement too large for the server are compared by digests.
        """
        octets = [each for text in keys for each in spellings(text)]
        if sum(map(len, octets)) > MAX_LISTED_BYTES:
            digests = [sha256(each).digest() for each in octets]
            return f"{self.comparable(key)} NOT IN {{without}}", {"without": digests}
        return f"CAST({self.to_utf8(key)} AS BINARY) NOT IN {{without}}", {"without": octets}

    def not_in_query(self, key: str, query: str) -> str:
        """Writes that a key is none of those of a query; while there are none, no digest is computed."""
        return f"(NOT EXISTS ({query}) OR {key} NOT IN ({query}))"

    def lane_of(self, key: str) -> str:
        """Writes the lane of a key."""
        return f"MOD(CRC32({key}), {{lanes}})"

    def snapshot_by_id(self, table: str) -> str:
        """Writes an outbox to mark from, read in the order of ids whatever the statistics say."""
        return f"{table} FORCE INDEX ({self.id_index})"

    def snapshot_by_index(self, table: str, index: str) -> str:
        """Writes an outbox to mark from, read by an index whatever the statistics say."""
        return f"{table} FORCE INDEX ({index})"

    def set_default(self, table: TableName, column: str, default: str) -> str:
        """Writes the statement that changes a column's default, a number or an expression."""
        return super().set_default(table, column, default if default.isdigit() else f"({default})")

    def change_by_ids(self, change: ChangeByIds, ids: str) -> str:
        """Writes an UPDATE or a DELETE that finds its rows by an index.

        A statement that read the whole table would wait for rows that are not committed. MySQL obeys an index
        hint in a DELETE only as the comment of a plain one; MariaDB only where a join has no other way, and
        MariaDB alone reads what stands behind ``/*M!``.
        """
        table, index = change.table, change.index
        if not index:
            return change.sql(ids)
        if change.assignments:
            return replace(change, table=f"{table} FORCE INDEX ({index})").sql(ids)
        listed = f"JSON_TABLE('[{ids}]', '$[*]' COLUMNS (listed BIGINT PATH '$'))"
        joined = f"/*M! FORCE INDEX ({index}) ON o.{change.id_column} = k.listed */"
        return (
            f"DELETE /*+ INDEX(o {index}) */ FROM /*M! o USING {listed} AS k STRAIGHT_JOIN */ {table} AS o"
            f" {joined} WHERE {change.where(change.within(ids))}"
        )

    def change_runs(self, change: ChangeByIds, runs: int) -> str:
        """Writes an UPDATE or a DELETE that reads no row behind a run, which it might have to wait for.

        A range ends with a look at the row behind it. Here that is the run's last row, which is chosen by
        itself, and a single row is found without a look at the next. Only if the last row is gone does the
        statement see what is behind. Both servers obey these hints, and read each range, whatever their
        statistics say; a plain DELETE of many rows would read the whole table. MariaDB 10.11 does so, too,
        where nothing but ids is compared; then there is no such statement.
        """
        within = " OR ".join(
            f"id BETWEEN {{first{n}}} AND {{last{n}}} - 1 OR id = {{last{n}}}" for n in range(runs)
        )
        if change.assignments:
            return replace(change, table=f"{change.table} FORCE INDEX ({change.index})").sql_of(f"({within})")
        if not change.condition:
            return ""
        return (
            f"DELETE /*+ INDEX(o {change.index}) */ FROM /*M! o USING */ {change.table} AS o"
            f" /*M! FORCE INDEX ({change.index}) */ WHERE {change.where(f'({within})')}"
        )

    def delete_listed(self, table: str, of: str, key: str, query: str) -> str:
        """Writes a DELETE that looks each row up by its key; MariaDB would read all rows for an IN."""
        return (
            f"DELETE gone FROM ({query}) AS listed STRAIGHT_JOIN {table} AS gone"
            f" ON gone.{of} = {{{of}}} AND gone.{key} = listed.{key}"
        )

    def ids_not_in(self, ids: Sequence[int]) -> tuple[str, Mapping[str, object]]:
        """Writes that a row's id is none of ``ids``: one parameter, which is a list."""
        return "id NOT IN {without}", {"without": ids}

    def refusal(self, record: Record) -> str:
        """Returns why the outbox cannot hold a record; empty if it can."""
        return f"a key has at most {KEY_BYTES:,} bytes" if len(record.key.encode()) > KEY_BYTES else ""

    def bytes_parameter(self, value: str | bytes | None) -> object:
        """Leaves text as it is, which is sent as UTF-8; bytes are sent as twice as many digits."""
        return value
