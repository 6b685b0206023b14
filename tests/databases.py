"""The databases of a shop; most of what it needs is in the dialect of its outbox."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from threading import Lock
from typing import Any, ClassVar, NamedTuple, TypeVar

import psycopg
from outbox_api import Capability, Dialect, DriverError, LaneStatus, OutboxTable, Record, Seam, Stasher, find
from outbox_api.portable import ErrorKind, PortableDialect
from outbox_api.portable import Session as PortableSession
from outbox_api.portable.keeping import Keep
from outbox_api.support.statement import Statement, Style
from psycopg.conninfo import make_conninfo

from . import events

GOHARVEST_DDL = """
CREATE TABLE IF NOT EXISTS outbox (
    id                  BIGSERIAL PRIMARY KEY,
    create_time         TIMESTAMP WITH TIME ZONE NOT NULL,
    kafka_topic         VARCHAR(249) NOT NULL,
    kafka_key           VARCHAR(100) NOT NULL,
    kafka_value         VARCHAR(10000),
    kafka_header_keys   TEXT[] NOT NULL,
    kafka_header_values TEXT[] NOT NULL,
    leader_id           UUID
)
"""
"""The outbox table of goharvest."""

SALES = "CREATE TABLE sales (customer VARCHAR(100), number INTEGER, PRIMARY KEY (customer, number))"

KEPT_SECONDS = 86_400.0
"""How long delivered records are kept, where they are."""


class Written(NamedTuple):
    """A table of records, and what its columns mean.

    Attributes:
        table: Its name.
        number: The column that tells its rows apart.
        key: The column with the key.
        waits: The condition of rows that have not been harvested.
    """

    table: str
    number: str
    key: str
    waits: str


OUTBOX = Written("outbox", "id", "kafka_key", "1 = 1")

_KEYS = "(SELECT DISTINCT customer FROM sales) AS keys_sold"
_TOUCHES = """
CREATE TABLE touches (at TIMESTAMPTZ, who TEXT, what TEXT, records BIGINT);
CREATE FUNCTION note_touch() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO touches
    SELECT clock_timestamp(), current_setting('application_name'), TG_OP, count(*) FROM touched;
    RETURN NULL;
END $$;
"""
_TOUCHES_OF = """
CREATE TRIGGER touched_by_update AFTER UPDATE ON {table}
    REFERENCING OLD TABLE AS touched FOR EACH STATEMENT EXECUTE FUNCTION note_touch();
CREATE TRIGGER touched_by_delete AFTER DELETE ON {table}
    REFERENCING OLD TABLE AS touched FOR EACH STATEMENT EXECUTE FUNCTION note_touch();
"""

Answer = TypeVar("Answer")


class Database(ABC):
    """A database that is empty, or contains a shop.

    Args:
        dsn: The data source, as its dialect expects it.

    Attributes:
        driver: Its dialect's driver name.
        numbered: The type of a column whose numbers are given out.
        taken: Whether the application writes its records into another table (see :mod:`.events`).
        dialect: The dialect of its outbox.
        fence: Queries the outbox and its fence.
    """

    driver: ClassVar[str]
    numbered: ClassVar[str] = "INTEGER"
    taken = False

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        driver = find(Seam.DIALECT, self.driver)
        self.dialect: Dialect = driver.create(driver.options(data_source=dsn))
        self.fence = Lookout(self.dialect)
        self._stasher = Stasher(dialect=self.driver)

    @property
    def concurrent(self) -> bool:
        """Whether several transactions may have uncommitted records at the same time."""
        return Capability.CONCURRENT_WRITERS in self.dialect.capabilities

    def open(self) -> None:
        """Creates the tables of sales and of the outbox, and the one that an intake is of."""
        self._create_outbox()
        with closing(self.connect()) as connection:
            for ddl in SALES, *([events.ddl(self.numbered)] if self.taken else []):
                self.execute(connection, ddl)
            connection.commit()

    def keep_records(self) -> None:
        """Has its dialect create a table for what is delivered, as an option of harvesters asks for."""
        driver = find(Seam.DIALECT, self.driver)
        self.dialect = driver.create(driver.options(data_source=self.dsn, keep=Keep(for_=KEPT_SECONDS)))

    def connect(self) -> Any:
        """Connects like an application, not in autocommit mode."""
        return self.dialect.stash_connection()

    def execute(self, connection: Any, sql: str, **values: object) -> Any:
        """Executes a statement with parameters ``{name}``; returns the cursor."""
        statement = Statement(sql, self.style)
        cursor = connection.cursor()
        cursor.execute(statement.text, statement.arguments(values))
        return cursor

    def fetch(self, sql: str) -> Sequence[Any]:
        """Returns the committed rows of a query."""
        with closing(self.connect()) as connection:
            rows: Sequence[Any] = self.execute(connection, sql).fetchall()
        return rows

    def sell(self, connection: Any, sales: Sequence[tuple[str, int]], records: Sequence[Record]) -> None:
        """Writes sales and their records as part of a transaction."""
        made = [{"customer": customer, "number": number} for customer, number in sales]
        self._insert(connection, "INSERT INTO sales VALUES ({customer}, {number})", made)
        if self.taken:
            self._insert(connection, events.INSERT, map(events.row, records))
        else:
            self._stasher.stash_many(connection, records)

    def _insert(self, connection: Any, sql: str, rows: Iterable[Mapping[str, object]]) -> None:
        statement = Statement(sql, self.style)
        connection.cursor().executemany(statement.text, [statement.arguments(row) for row in rows])

    @property
    def written(self) -> Written:
        """What the application writes its records into."""
        return Written(events.TABLE, "seq", "name", events.UNSENT) if self.taken else OUTBOX

    def waiting(self, connection: Any, customer: str | None = None) -> Sequence[Any]:
        """Returns the first records that have not been harvested, of all customers or of one."""
        # First where they come from.
        for table, number, key, waits in dict.fromkeys((self.written, OUTBOX)):
            of_customer = "" if customer is None else f" AND {key} = '{customer}'"
            select = f"SELECT * FROM {table} WHERE {waits}{of_customer} ORDER BY {number} LIMIT 3"
            rows: Sequence[Any] = self.execute(connection, select).fetchall()
            if rows:
                return rows
        return []

    def clear(self) -> None:
        """Deletes all sales and all records."""
        with closing(self.connect()) as connection:
            for table in dict.fromkeys((self.written.table, "outbox", "sales")):
                self.execute(connection, f"DELETE FROM {table}")
            connection.commit()

    def named(self, name: str) -> str:
        """Returns the data source of a harvester, with the harvester's name if the database supports that."""
        return self.dsn

    def _create_outbox(self) -> None:
        self.dialect.create()

    @property
    @abstractmethod
    def style(self) -> Style:
        """The parameter style of its client."""

    @abstractmethod
    def passing(self, error: Exception) -> bool:
        """Returns whether an error of this database is temporary, for instance because it is down."""

    @abstractmethod
    def lane_of_keys(self, lanes: int) -> dict[str, int]:
        """Returns customer → lane, as the database computes it."""


class Lookout:
    """Queries an outbox and its fence over one connection; for any thread, one at a time.

    Args:
        dialect: The outbox's dialect.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._table: OutboxTable | None = None
        self._lock = Lock()

    def ask(self, question: Callable[[OutboxTable], Answer]) -> Answer:
        """Returns the result of a query; connects again if the connection is lost.

        Raises:
            DriverError: The database is down, or refuses.
        """
        with self._lock:
            kept = self._table is not None
            try:
                return self._ask(question)
            except DriverError:
                self._close()
                if not kept:
                    raise
                return self._ask(question)

    def lane_statuses(self) -> list[LaneStatus]:
        """Returns the fence's row of each lane."""
        return self.ask(lambda table: table.lane_statuses())

    def oldest(self) -> float | None:
        """Returns the age in seconds of the oldest record in the outbox, if there is one."""
        return self.ask(lambda table: table.backlog()).oldest

    def close(self) -> None:
        """Disconnects; a later query connects again. Idempotent."""
        with self._lock:
            self._close()

    def _ask(self, question: Callable[[OutboxTable], Answer]) -> Answer:
        if self._table is None:
            self._table = self._dialect.connect()
        return question(self._table)

    def _close(self) -> None:
        if self._table is not None:
            self._table.close()
            self._table = None


class Postgres(Database):
    """PostgreSQL, with goharvest's outbox table."""

    driver = "postgres"
    numbered = "BIGINT GENERATED ALWAYS AS IDENTITY"

    @property
    def style(self) -> Style:
        return Style.PYFORMAT

    def connect_at_once(self) -> psycopg.Connection:
        """Connects in autocommit mode."""
        return psycopg.connect(self.dsn, autocommit=True)

    def named(self, name: str) -> str:
        return make_conninfo(self.dsn, application_name=name)

    def passing(self, error: Exception) -> bool:
        if isinstance(error, DriverError):
            return error.retryable
        return isinstance(error, psycopg.OperationalError | psycopg.errors.ReadOnlySqlTransaction)

    def lane_of_keys(self, lanes: int) -> dict[str, int]:
        sql = f"SELECT customer, (hashtext(customer) & 2147483647) % {lanes} FROM {_KEYS}"
        with self.connect_at_once() as connection:
            return {str(customer): int(lane) for customer, lane in connection.execute(sql.encode())}

    def watch(self) -> None:
        """Records from now on which connection changes how many rows that wait."""
        with self.connect_at_once() as connection:
            connection.execute(_TOUCHES)
            for table in dict.fromkeys((self.written.table, "outbox")):
                connection.execute(_TOUCHES_OF.format(table=table).encode())

    def touches(self, since: float) -> dict[str, int]:
        """Returns application name → rows that its connections have changed since a time in seconds."""
        sql = "SELECT who, sum(records)::int FROM touches WHERE at >= to_timestamp(%s) GROUP BY who"
        with self.connect_at_once() as connection:
            return dict(connection.execute(sql, (since,)).fetchall())

    def _create_outbox(self) -> None:
        with self.connect_at_once() as connection:
            connection.execute(GOHARVEST_DDL)
        super()._create_outbox()


class Portable(Database):
    """A database with a portable dialect."""

    dialect: PortableDialect

    @property
    def style(self) -> Style:
        return self.dialect.idiom.style

    def passing(self, error: Exception) -> bool:
        if isinstance(error, DriverError):
            return error.retryable
        idiom = self.dialect.idiom
        return isinstance(error, idiom.errors) and idiom.error_kind(error) is ErrorKind.TRANSIENT

    def lane_of_keys(self, lanes: int) -> dict[str, int]:
        idiom = self.dialect.idiom
        with closing(PortableSession(self.dialect.open(), idiom, self.dialect.address)) as session:
            sql = f"SELECT customer, {idiom.lane_of(idiom.comparable('customer'))} FROM {_KEYS}"
            with session.transaction("read the lanes of keys"):
                return {str(customer): int(lane) for customer, lane in session.fetch(sql, lanes=lanes)}


class MySql(Portable):
    """MySQL, or MariaDB."""

    driver = "mysql"
    numbered = "BIGINT AUTO_INCREMENT"


class Sqlite(Portable):
    """SQLite; its data source is a file."""

    driver = "sqlite"
