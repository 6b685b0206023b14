"""The options of ``driver: sqlserver``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from outbox_sdk import ConfigError, Duration, FileText, present_text
from outbox_sdk.password import only_password
from outbox_sdk.portable import PortableOptions

from outbox_sqlserver.data_source import DataSource


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlServerOptions(PortableOptions):
    """Options of the SQL Server dialect.

    Attributes:
        data_source: ``Server=host,1433;Database=shop;Uid=outbox;Pwd=…;Encrypt=yes``, or
            ``mssql://outbox:…@host:1433/shop?encrypt=yes``. Encrypted unless it says otherwise.
        password: The password, instead of one in the data source; taken as it is.
        connect_timeout: How long to try to connect and sign in.
        lock_timeout: How long a statement may wait for a lock.
        statement_timeout: How long to wait for the server's answer.
    """

    data_source: str | FileText = field(default="Server=localhost,1433", repr=False)
    password: str | FileText | None = field(default=None, repr=False)
    connect_timeout: Duration = 5.0
    lock_timeout: Duration = 5.0
    statement_timeout: Duration = 30.0

    def __post_init__(self) -> None:
        PortableOptions.__post_init__(self)
        self.require_times("connect_timeout", "lock_timeout", "statement_timeout")
        if any(
            "%" in name for name in (self.table, self.fence_table, self.dead_letter_table, self.journal_table)
        ):
            raise ConfigError("a table's name has a % in it, which the driver takes for a parameter")
        _ = self.source  # it is valid

    @property
    def source(self) -> DataSource:
        """The present data source, parsed, with the password.

        Raises:
            ConfigError: It is malformed, has a second password, or is in a file that cannot be read.
        """
        source = DataSource.parse(present_text(self.data_source))
        return replace(source, password=only_password(self.password, source.password))
