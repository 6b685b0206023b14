"""How MySQL and MariaDB write what the SQL standard leaves open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import ClassVar, Final

from outbox_sdk.portable import ErrorKind, Idiom
from outbox_sdk.portable.by_ids import ChangeByIds
from outbox_sdk.portable.rows import spellings
from outbox_sdk.record import Record
from outbox_sdk.statement import Style

from outbox_mysql.ddl import KEY_BYTES, LINE

_PASSING: Final = frozenset(
    {
        # The client's: no connection, or none any more; 0 is PyMySQL's for one that is closed.
        0, 2002, 2003, 2006, 2013, 2055,
        # The server has no room or time: connections, memory, disk, locks.
        1021, 1026, 1030, 1037, 1038, 1040, 1041, 1114, 1135, 1203, 1206, 1213, 1226, 1637, 3572,
        # It shuts down, starts, or has ended the session.
        1043, 1053, 1077, 1078, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 3032, 3168, 3169, 4031,
        # A proxy, ProxySQL, finds no server behind it.
        9001, 9002,
        # A statement ran for too long, or was interrupted.
        1028, 1317, 1969, 3024,
        # It is read-only, as after a failover; or is not the cluster's member that may be written.
        1047, 1290, 1792, 1836,
        # A member of the cluster has changed the same rows first.
        1020, 1180, 3100, 3101,
        # Somebody changes the table at this moment.
        1412, 1615,
    }
)  # fmt: skip
_REFUSED: Final = frozenset(
    {1044, 1045, 1095, 1130, 1131, 1132, 1142, 1143, 1227, 1251, 1370, 1396, 1449, 1524, 1698, 1820, 1862,
     1873, 2049, 2054, 2058, 2059, 2061, 3118, 3159, 3955, 4151}
)  # fmt: skip
_LOCKED: Final = frozenset({1205})
_ABSENT: Final = frozenset({1146})
_PRESENT: Final = frozenset({1050, 1062})

_CURES: Final = {
    1021: "the server's disk is full",
    1044: "let somebody GRANT this account access to the database",
    1045: "correct user and password in dataSource",
    1046: "name the database in dataSource: mysql://user@host/database",
    1049: "correct the database's name in dataSource, or create it: CREATE DATABASE …",
    1114: "the server's disk, or the table's space, is full",
    1129: "let somebody run FLUSH HOSTS, or mariadb-admin flush-hosts",
    1130: "let somebody create the account for this host: CREATE USER user@host",
    1142: "let somebody GRANT this account what is missing; the README lists it",
    1143: "let somebody GRANT this account what is missing; the README lists it",
    1153: "raise the server's max_allowed_packet",
    1193: "use MySQL 8.0.20, MariaDB 10.6, or newer",
    1205: "another transaction holds the rows for too long; see information_schema.innodb_trx",
    1290: "the server is read-only; see that dataSource leads to the one that is not",
    1665: "set binlog_format = ROW or MIXED on the server",
    1698: "the account signs in as an operating system's user only; give it a password",
    1820: "the account's password has expired; set a new one",
    1836: "the server is read-only; see that dataSource leads to the one that is not",
    1862: "the account's password has expired; set a new one",
    2059: "the account's way of signing in is not one that PyMySQL knows",
    2061: "the account's way of signing in is not one that PyMySQL knows",
    3118: "the account is locked: ALTER USER … ACCOUNT UNLOCK",
    3159: "the server wants TLS: add ssl-mode=REQUIRED to dataSource",
    4151: "the account is locked: ALTER USER … ACCOUNT UNLOCK",
}
_UNTRUSTED: Final = (
    "see that ssl-ca is the authority's certificate and that the server goes by this host's name"
)


class MySqlIdiom(Idiom):
    """MySQL's and MariaDB's. A session has transactions on and isolation READ COMMITTED."""

    style: ClassVar[Style] = Style.PYFORMAT
    now: ClassVar[str] = "UTC_TIMESTAMP(6)"
    # What MariaDB knows too, and MySQL takes for FOR SHARE.
    shared_lock: ClassVar[str] = " LOCK IN SHARE MODE"
    skip_locked: ClassVar[str] = " FOR UPDATE SKIP LOCKED"
    short_text_type: ClassVar[str] = LINE
    id_index: ClassVar[str] = "PRIMARY"
    scans_block: ClassVar[bool] = True
    # Thereby drivers can send many rows in one INSERT, which takes nothing but parameters.
    fills_create_time: ClassVar[bool] = True

    @property
    def errors(self) -> type[Exception]:
        """The driver's base class of errors."""
        from pymysql import MySQLError  # noqa: PLC0415 - loads the driver only when it is needed

        return MySQLError

    def error_kind(self, error: Exception) -> ErrorKind:
        """Returns what an error means, by its number."""
        if _untrusted(error):
            return ErrorKind.PERMANENT
        number = _number(error)
        for numbers, error_kind in (
            (_PASSING, ErrorKind.TRANSIENT),
            (_REFUSED, ErrorKind.ACCESS_DENIED),
            (_LOCKED, ErrorKind.LOCK_TIMEOUT),
            (_ABSENT, ErrorKind.NO_TABLE),
            (_PRESENT, ErrorKind.EXISTS),
        ):
            if number in numbers:
                return error_kind
        # Without a number it is PyMySQL's own: replies that do not belong together, or a closed connection.
        return ErrorKind.TRANSIENT if number is None else ErrorKind.PERMANENT

    def cure(self, error: Exception) -> str:
        """Returns what a user can do about an error; empty if there is no advice."""
        return _UNTRUSTED if _untrusted(error) else _CURES.get(_number(error) or 0, "")

    def quote(self, name: str) -> str:
        """Quotes an identifier, whatever the session's SQL mode."""
        return "`" + name.replace("`", "``") + "`"

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

    def not_in(self, key: str, keys: Sequence[str]) -> tuple[str, Mapping[str, object]]:
        """Writes that a key is none of ``keys``, by their digests: one parameter, which is a list."""
        digests = [sha256(each).digest() for text in keys for each in spellings(text)]
        return f"{key} NOT IN {{without}}", {"without": digests}

    def lane_of(self, key: str) -> str:
        """Writes the lane of a key."""
        return f"MOD(CRC32({key}), {{lanes}})"

    def snapshot_by_id(self, table: str) -> str:
        """Writes an outbox to mark from, read in the order of ids whatever the statistics say."""
        return f"{table} FORCE INDEX ({self.id_index})"

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
            f" {joined} WHERE {change.where(ids)}"
        )

    def refusal(self, record: Record) -> str:
        """Returns why the outbox cannot hold a record; empty if it can."""
        return f"a key has at most {KEY_BYTES:,} bytes" if len(record.key.encode()) > KEY_BYTES else ""

    def bytes_parameter(self, value: str | bytes | None) -> object:
        """Leaves text as it is, which is sent as UTF-8; bytes are sent as twice as many digits."""
        return value


def _number(error: Exception) -> int | None:
    number = error.args[0] if error.args else None
    return number if isinstance(number, int) else None


def _untrusted(error: Exception) -> bool:
    import ssl  # noqa: PLC0415 - not every Python has it, and few need it

    return isinstance(getattr(error, "original_exception", None), ssl.SSLCertVerificationError)
