"""The options of ``driver: mysql``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from outbox_sdk import ConfigError, Duration, FileText, present_text
from outbox_sdk.password import only_password
from outbox_sdk.portable import PortableOptions

from outbox_mysql.data_source import DataSource


@dataclass(frozen=True, slots=True, kw_only=True)
class MySqlOptions(PortableOptions):
    """Options of the MySQL dialect.

    Attributes:
        data_source: Where the database is: ``mysql://user:password@host:3306/database``, with options of its
            own behind a question mark.
        password: The password, instead of one in the data source; taken as it is.
        connect_timeout: How long to try to connect.
        lock_timeout: How long a statement may wait for a lock; a forgotten transaction then shows as an
            error. Whole seconds, at least one.
        statement_timeout: How long a statement may run.
        idle_timeout: After how long the server ends a session of ours that is in a transaction and silent,
            because its process is frozen or gone: until then it may hold up the next leader. Whole seconds,
            at least one.
    """

    data_source: str | FileText = field(default="mysql://root@localhost:3306/outbox", repr=False)
    password: str | FileText | None = field(default=None, repr=False)
    connect_timeout: Duration = 5.0
    lock_timeout: Duration = 5.0
    statement_timeout: Duration = 30.0
    idle_timeout: Duration = 10.0

    def __post_init__(self) -> None:
        PortableOptions.__post_init__(self)
        self.require_times("connect_timeout", "lock_timeout", "statement_timeout", "idle_timeout")
        source = self.source
        if not (self.outbox.schema or source.database or "read-default-file" in source.query):
            raise ConfigError("dataSource names no database: mysql://user@host/database")

    @property
    def source(self) -> DataSource:
        """The present data source, parsed, with the password.

        Raises:
            ConfigError: It is malformed, has a second password, or is in a file that cannot be read.
        """
        source = DataSource.parse(present_text(self.data_source))
        return replace(source, password=only_password(self.password, source.password))
