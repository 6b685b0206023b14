"""The SQLite dialect: options, connections, and the tables."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from outbox_api import AccessDenied, Capability, ConfigError, Duration, Finding, Level
from outbox_api.portable import CAPABILITIES, Idiom, PortableDialect, PortableOptions, Session
from outbox_api.portable.outboxes import TablePattern

from outbox_sqlite.idiom import FileConnection, SqliteIdiom, digest, lane, text

_OLDEST = (3, 31)
_BUSY_SECONDS = 0.005
"""The pause before a setting is tried again that another connection did not permit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteOptions(PortableOptions):
    """Options of the SQLite dialect.

    Attributes:
        data_source: The database's file.
        lock_timeout: How long a transaction may wait for another one to end.
    """

    data_source: str = "outbox.db"
    lock_timeout: Duration = 5.0

    def __post_init__(self) -> None:
        PortableOptions.__post_init__(self)
        if self.data_source in ("", ":memory:"):
            raise ConfigError(
                "dataSource must be a file: a database in memory is seen by one connection only"
            )
        if self.outbox.schema:
            raise ConfigError(f"table is '{self.table}'; in SQLite it has no schema")

    @classmethod
    def table_pattern(cls, text: str) -> TablePattern:
        """Reads a pattern of tables' names, which have no schema."""
        pattern = TablePattern(text, cls.table_name)
        if pattern.schema:
            raise ConfigError(f"the pattern is '{text}'; in SQLite tables have no schema")
        return pattern


class SqliteDialect(PortableDialect):
    """An outbox in a SQLite database."""

    idiom: ClassVar[Idiom] = SqliteIdiom()
    # Transactions that change rows run one at a time.
    capabilities: ClassVar[frozenset[Capability]] = CAPABILITIES | {Capability.CONCURRENT_DDL}
    options: SqliteOptions

    @property
    def address(self) -> str:
        """The database's file."""
        return f"SQLite database '{self.options.data_source}'"

    def open(self) -> sqlite3.Connection:
        """Opens the file, which must exist."""
        # Readers and a writer do not wait for each other; a commit returns when it is on the disk.
        return self._opened("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL")

    def open_to_watch(self) -> sqlite3.Connection:
        """Opens the file, which may be one that the user can only read.

        It is opened for writing if it can be: who opens it read-only leaves files of its own beside it.
        """
        return self._opened("PRAGMA query_only = ON")

    def _opened(self, *settings: str) -> sqlite3.Connection:
        uri = f"{Path(self.options.data_source).absolute().as_uri()}?mode=rw"
        connection = sqlite3.connect(
            uri,
            uri=True,
            timeout=self.options.lock_timeout,
            isolation_level=None,
            check_same_thread=False,
            factory=FileConnection,
        )
        connection.text_factory = text
        connection.create_function("outbox_lane", 2, lane, deterministic=True)
        connection.create_function("outbox_digest", 1, digest, deterministic=True)
        for setting in settings:
            self._set(connection, setting)  # again, while another connection changes the journal mode
        return connection

    def _set(self, connection: sqlite3.Connection, setting: str) -> None:
        """Sets what holds for a connection.

        SQLite does not wait for its timeout where two connections change the journal mode at the same time.
        """
        deadline = time.monotonic() + self.options.lock_timeout
        while True:
            try:
                connection.execute(setting)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > deadline:
                    connection.close()
                    raise
                time.sleep(_BUSY_SECONDS)
            else:
                return

    def open_as_application(self) -> sqlite3.Connection:
        """Opens the file as an application would."""
        return sqlite3.connect(self.options.data_source, timeout=self.options.lock_timeout)

    def create(self) -> Sequence[str]:
        """Creates the file, and in it the tables, where they do not exist."""
        try:
            Path(self.options.data_source).touch()
        except OSError as error:
            raise AccessDenied(f"cannot create the {self.address}: {error.strerror}") from error
        return PortableDialect.create(self)

    def outbox_statements(self, table: str) -> Sequence[str]:
        """Returns the statement that creates the outbox."""
        return [
            f"""CREATE TABLE {table} (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    create_time TEXT NOT NULL DEFAULT ({self.idiom.now}),
    kafka_topic TEXT NOT NULL,
    kafka_key TEXT NOT NULL,
    kafka_value {"BLOB" if self.options.binary else "TEXT"},
    kafka_header_keys TEXT,
    kafka_header_values TEXT,
    leader_id TEXT
)"""
        ]

    def check(self) -> Sequence[Finding]:
        """Looks at everything that could be wrong with the database side; never raises."""
        from outbox_api.portable.check import check  # noqa: PLC0415 - of which nothing else has need

        return check(self, watches=True)

    def findings(self, session: Session) -> Iterator[Finding]:
        """Checks the library's version, the rights to the file, and the journal."""
        version = f"SQLite {sqlite3.sqlite_version}"
        if sqlite3.sqlite_version_info < _OLDEST:
            yield Finding(Level.ERROR, "version", version, "use a Python with SQLite 3.31 or newer")
        else:
            yield Finding(Level.OK, "version", version)
        file = Path(self.options.data_source).absolute()
        if locked := [str(each) for each in (file, file.parent) if not os.access(each, os.W_OK)]:
            seen = f"this user may not write {' and '.join(locked)}"
            yield Finding(Level.ERROR, "rights", seen, "run the harvester as a user who may")
        mode = session.connection.execute("PRAGMA journal_mode").fetchone()[0]
        if mode == "wal":
            yield Finding(Level.OK, "journal", "write-ahead: applications read and stash while a lane works")
        else:
            cure = "keep the file on a local disk, where SQLite can share memory"
            yield Finding(Level.WARNING, "journal", f"journal mode is {mode}", cure)
