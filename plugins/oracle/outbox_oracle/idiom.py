"""How Oracle writes what the SQL standard leaves open, and what its error numbers mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from uuid import UUID

from outbox_api.base.record import Record
from outbox_api.intake.taken import FAULT
from outbox_api.portable import ErrorKind, Idiom, TableName
from outbox_api.portable.by_ids import ChangeByIds
from outbox_api.support.statement import Style
from outbox_api.support.tls import WRONG_HOST, certificate_cure, cure_of, verification_error

from outbox_oracle.options import canonical, plain, quoted

# Sessions and instances that come and go, listeners, locks, space, standbys that may be promoted, limits of a
# profile or a resource plan that a session cannot lift, and the server's own faults.
_TRANSIENT_ORA = (
    18, 20, 28, 40, 54, 60, 257, 600, 603, 1012, 1013, 1033, 1034, 1041, 1089, 1090, 1092, 1109, 1555, 1652,
    1653, 1654, 1658, 1691, 2049, 2391, 2392, 2393, 2394, 2395, 2396, 2399, 3113, 3114, 3135, 3136, 4021,
    7445, 7455, 8103, 8177, 12152, 12153, 12170, 12505, 12514, 12516, 12518, 12519, 12520, 12528, 12535,
    12537, 12541, 12543, 12545, 12547, 12560, 12571, 12606, 12608, 12609, 16000, 16456, 25401, 25402, 25403,
    25405, 25408, 25409, 30006, 30036, 56735, 64307,
)  # fmt: skip
_TRANSIENT_DPY = (1001, 4005, 4011, 4024, 6000, 6001, 6003, 6005)
_ACCESS_DENIED = (
    "ORA-00990", "ORA-01004", "ORA-01005", "ORA-01017", "ORA-01031", "ORA-01045", "ORA-01950", "ORA-28000",
    "ORA-28001", "ORA-41900", "DPY-4001",
)  # fmt: skip

ERROR_KINDS = {
    **{f"ORA-{number:05}": ErrorKind.TRANSIENT for number in _TRANSIENT_ORA},
    **{f"DPY-{number}": ErrorKind.TRANSIENT for number in _TRANSIENT_DPY},
    **dict.fromkeys(_ACCESS_DENIED, ErrorKind.ACCESS_DENIED),
    "ORA-00942": ErrorKind.NO_TABLE,
    "ORA-04043": ErrorKind.NO_TABLE,
    "ORA-00001": ErrorKind.EXISTS,
    "ORA-00955": ErrorKind.EXISTS,
}
"""By the full code; whatever is not listed lasts."""

CURES = {
    "DPY-4000": "correct the TNS alias in dataSource, or set configDir to the folder of tnsnames.ora",
    "DPY-4001": "put user and password into dataSource, or set them beside it",
    "DPY-6001": "see that the service in dataSource is right, and open",
    "ORA-00942": "see that the table is there and that this user may read it",
    "ORA-01031": "grant the user what the README lists",
    "ORA-02393": "raise CPU_PER_CALL in the user's profile",
    "ORA-02395": "raise LOGICAL_READS_PER_CALL in the user's profile",
    "ORA-12514": "see that the service in dataSource is right, and open",
    "ORA-12541": "see that the listener runs, and at this port",
    "ORA-16000": "connect to the primary, through a service that moves with it",
    "ORA-28000": "unlock the account",
    "ORA-28001": "change the user's password",
    "ORA-30006": "somebody's forgotten transaction holds the fence's row",
}
"""What a user can do, by the full code."""


WRONG_NAME = "DPY-6006"
"""The driver's code, within the text of another error, for a certificate that is for another host name."""


def cure(error: Exception) -> str:
    """Returns what a user can do about an error; empty if there is no advice."""
    if WRONG_NAME in str(error):
        return certificate_cure(WRONG_HOST, "walletLocation")
    return cure_of(error, "walletLocation") or CURES.get(full_code(error), "")


def full_code(error: Exception) -> str:
    """Returns ``ORA-…`` or ``DPY-…``; empty where the driver did not say."""
    return str(getattr(error.args[0] if error.args else None, "full_code", None) or "")


def error_kind(error: Exception) -> ErrorKind:
    """Says what an error of the driver means."""
    if WRONG_NAME in str(error) or verification_error(error):
        return ErrorKind.PERMANENT
    detail = error.args[0] if error.args else None
    # The network is gone, or its name: the driver lets some errors of the socket pass as they are, and
    # the dialect wraps them.
    if isinstance(error.__cause__, OSError) or getattr(detail, "is_session_dead", False):
        return ErrorKind.TRANSIENT
    found = ERROR_KINDS.get(full_code(error))
    if found is None and getattr(detail, "isrecoverable", False):
        return ErrorKind.TRANSIENT
    return found or ErrorKind.PERMANENT


EMPTY = "\0empty\0"
"""Stored in place of an empty value, which Oracle would turn into null."""


KEY_BYTES = 4_000
"""The longest VARCHAR2 with any setting of the database."""

OWNER = "COALESCE({owner}, SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA'))"
"""The schema of a table, in the data dictionary."""

READ = ("ID", "KAFKA_TOPIC", "KAFKA_KEY", "KAFKA_VALUE", "KAFKA_HEADER_KEYS")
"""How the columns begin where rows are read as records."""


class OracleIdiom(Idiom):
    """Oracle's, from 12.1.

    Oracle stores an empty text as null. A key is therefore read as empty if it is null, and an empty value is
    stored as ``EMPTY``. There are no shared row locks, so the fence's row is locked exclusively.
    """

    style: ClassVar[Style] = Style.NAMED
    begin_watching: ClassVar[str] = "SET TRANSACTION READ ONLY"
    user: ClassVar[str] = "SYS_CONTEXT('USERENV', 'SESSION_USER') FROM SYS.dual"
    brief_locks: ClassVar[str] = "ALTER SESSION SET DDL_LOCK_TIMEOUT = 1"
    catalogue: ClassVar[str] = """
        SELECT t.owner AS schema_name, t.table_name AS table_name, c.column_name AS column_name
        FROM SYS.all_tab_columns c JOIN SYS.all_tables t ON t.owner = c.owner AND t.table_name = c.table_name
        WHERE t.dropped = 'NO' AND t.temporary = 'N'"""
    current_schema: ClassVar[str] = "SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')"
    short_text_type: ClassVar[str] = "VARCHAR2(4000 BYTE)"
    integer_type: ClassVar[str] = "NUMBER(19)"
    numbered_type: ClassVar[str] = "NUMBER(19) GENERATED BY DEFAULT ON NULL AS IDENTITY"
    key_type: ClassVar[str] = "VARCHAR2(4000 BYTE)"
    moment_type: ClassVar[str] = "TIMESTAMP(6) WITH TIME ZONE"
    # A CLOB is compared with nothing.
    kept_types: ClassVar[Mapping[str, str]] = dict.fromkeys(("kafka_topic", "kafka_key"), key_type)
    indexes: ClassVar[str] = (
        "SELECT index_name, column_name FROM SYS.all_ind_columns"  # noqa: S608 - of our own parts
        f" WHERE table_owner = {OWNER} AND table_name = {{wanted}} ORDER BY index_name, column_position"
    )
    defaults: ClassVar[str] = (
        "SELECT column_name, data_default FROM SYS.all_tab_columns"  # noqa: S608 - of our own parts
        f" WHERE owner = {OWNER} AND table_name = {{wanted}}"
    )
    types: ClassVar[str] = (
        "SELECT column_name, data_type || CASE WHEN data_type = 'RAW' THEN '(' || data_length || ')' END,"  # noqa: S608 - as above
        " CASE identity_column WHEN 'YES' THEN 1 END, CASE nullable WHEN 'N' THEN 1 ELSE 0 END"
        " FROM SYS.all_tab_columns"
        f" WHERE owner = {OWNER} AND table_name = {{wanted}}"
    )
    view_query: ClassVar[str] = (
        f"SELECT view_name FROM SYS.all_views WHERE owner = {OWNER} AND view_name = {{wanted}}"  # noqa: S608 - of our own parts
    )
    # As text or with a zone of its own, the driver would lose the zone.
    present: ClassVar[str] = "SELECT SYS_EXTRACT_UTC(SYSTIMESTAMP) FROM SYS.dual"
    now: ClassVar[str] = "SYSTIMESTAMP"
    last_id: ClassVar[str] = (
        "SELECT s.last_number - s.increment_by"  # noqa: S608 - of our own parts
        " FROM SYS.all_tab_identity_cols c JOIN SYS.all_sequences s"
        " ON s.sequence_owner = c.owner AND s.sequence_name = c.sequence_name"
        f" WHERE c.owner = {OWNER} AND c.table_name = {{wanted}} AND c.column_name = 'ID'"
    )
    last_id_cure: ClassVar[str] = (
        "ALTER TABLE {table} MODIFY (id GENERATED BY DEFAULT ON NULL AS IDENTITY (START WITH LIMIT VALUE))"
    )
    shared_lock: ClassVar[str] = " FOR UPDATE WAIT 5"
    exclusive_lock: ClassVar[str] = " FOR UPDATE WAIT 5"

    def instant(self, column: str, type_: str) -> str:
        """Writes a column of a type that knows the zone."""
        return f"SYS_EXTRACT_UTC({column})" if "time zone" in type_ else ""

    @property
    def errors(self) -> type[Exception]:
        """The driver's base class of errors."""
        import oracledb  # noqa: PLC0415 - only who connects needs it

        errors: type[Exception] = oracledb.Error
        return errors

    def error_kind(self, error: Exception) -> ErrorKind:
        """Returns what an error means, by its code."""
        return error_kind(error)

    def cure(self, error: Exception) -> str:
        """Returns what a user can do about an error; empty if there is no advice."""
        return cure(error)

    def age_seconds(self, timestamp: str) -> str:
        """Writes the seconds since a timestamp."""
        units = {"DAY": 86400, "HOUR": 3600, "MINUTE": 60, "SECOND": 1}
        parts = (
            f"EXTRACT({unit} FROM (SYSTIMESTAMP - {timestamp})) * {size}" for unit, size in units.items()
        )
        return f"({' + '.join(parts)})"

    def lane_of(self, key: str) -> str:
        """Writes the lane of a key; the maximum of ORA_HASH is inclusive."""
        return f"ORA_HASH({key}, {{lanes}} - 1)"

    def comparable(self, text: str) -> str:
        """Writes a text so that an empty one, which is null, equals itself; sessions compare bytes."""
        return f"NVL({text}, CHR(0))"

    def change_runs(self, change: ChangeByIds, runs: int) -> str:
        """Writes a DELETE of all rows of the runs; rows of a leader id are looked up each by its id."""
        return "" if change.assignments or change.condition else super().change_runs(change, runs)

    def byte_length(self, column: str) -> str:
        """Writes how many bytes a key has, or how many bytes or characters a large object."""
        text = column in {"kafka_topic", "kafka_key"}
        return f"LENGTHB({column})" if text else f"SYS.DBMS_LOB.GETLENGTH({column})"

    def size_of(self, column: str) -> str:
        """Writes how many characters a text, or how many bytes a large object has."""
        return f"LENGTH({column})"

    def as_text(self, column: str) -> str:
        """Writes a column as text."""
        return f"TO_CHAR({column})"

    def truth(self, value: bool) -> object:
        """Makes the parameter for a column that is true or false: 1 or 0."""
        return int(value)

    @property
    def free_rows(self) -> tuple[str, str]:
        """How a SELECT locks the rows that nobody else has locked."""
        return "", " FOR UPDATE SKIP LOCKED"

    def beginning(self, column: str, length: int) -> str:
        """Writes the first characters of a text."""
        return f"SUBSTR({column}, 1, {length})"

    def text_type(self, octets: int) -> str:
        """Writes the type of a column for any text of some bytes."""
        return f"VARCHAR2({octets} BYTE)"

    def time_type(self) -> str:
        """Writes the type of a column for a time that is read: in the session's zone, which is UTC."""
        return "TIMESTAMP(6) WITH LOCAL TIME ZONE"

    def quote(self, name: str) -> str:
        """Quotes an identifier, folded to upper case unless it is quoted already."""
        return quoted(name)

    def known_as(self, table: TableName) -> str:
        """Writes a text: a table's name with its schema."""
        named = ".".join(canonical(part) for part in table if part)
        if table.schema:
            return self.literal(named)
        return f"{self.current_schema} || {self.literal('.' + named)}"

    def place(self, table: TableName) -> Mapping[str, object]:
        """Makes the parameters by which the data dictionary knows a table; an empty owner is null."""
        return {"owner": plain(table.schema) if table.schema else None, "wanted": plain(table.table)}

    def set_default(self, table: TableName, column: str, default: str) -> str:
        """Writes the statement that changes a column's default."""
        return f"ALTER TABLE {self.quote_table(table)} MODIFY {self.quote(column)} DEFAULT {default}"

    def index_name(self, table: TableName, columns: Sequence[str]) -> str:
        """Returns the name of a new index, in the schema of its table."""
        name = super().index_name(TableName("", plain(table.table)), columns)
        return f"{self.quote(table.schema)}.{name}" if table.schema else name

    def limit(self, select: str, count: str) -> str:
        """Limits an ordered SELECT to its first rows."""
        return f"{select} FETCH FIRST {count} ROWS ONLY"

    def refusal(self, record: Record) -> str:
        """Returns why the database cannot hold a record; empty if it can."""
        if len(record.key.encode(errors="replace")) > KEY_BYTES:
            return f"the key is longer than {KEY_BYTES} bytes"
        if record.value in (EMPTY, EMPTY.encode()):
            return f"the value is {EMPTY!r}, which stands for an empty one in Oracle's tables"
        return ""

    def uuid_parameter(self, leader_id: UUID) -> object:
        """Makes the parameter for a leader id, which is RAW."""
        return leader_id.bytes

    def value_parameter(self, value: str | bytes | None) -> object:
        """Makes the parameter for a record's value; an empty one is ``EMPTY``."""
        if value == "":
            return EMPTY
        return EMPTY.encode() if value == b"" else value

    def read_value(self, value: Any) -> str | bytes | None:
        """Reads a record's value."""
        if value == EMPTY:
            return ""
        return b"" if value == EMPTY.encode() else Idiom.read_value(self, value)

    def fetch_rows(self, cursor: Any) -> Sequence[Sequence[Any]]:
        """Fetches what a statement returned; a key that is null is empty, as is a topic beside a fault."""
        rows: Sequence[Sequence[Any]] = cursor.fetchall()
        names = tuple(column[0] for column in cursor.description[:5])
        if names != READ:
            return rows
        return [row if row[1] is not None and row[2] is not None else _filled(row) for row in rows]


def _filled(row: Sequence[Any]) -> Sequence[Any]:
    number, topic, key, value, headers, *rest = row
    if topic is None and str(headers).startswith(f'["{FAULT}'):
        topic = ""
    return (number, topic, key or "", value, headers, *rest)
