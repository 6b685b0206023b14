"""The options of ``driver: sqlserver``."""

from __future__ import annotations

from dataclasses import dataclass, field

from outbox_sdk import ConfigError, Duration
from outbox_sdk.portable import PortableOptions

from outbox_sqlserver.data_source import DataSource


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlServerOptions(PortableOptions):
    """Options of the SQL Server dialect.

    Attributes:
        data_source: ``Server=host,1433;Database=shop;Uid=outbox;Pwd=…;Encrypt=yes``, or
            ``mssql://outbox:…@host:1433/shop?encrypt=yes``. Encrypted unless it says otherwise.
        connect_timeout: How long to try to connect and sign in.
        lock_timeout: How long a statement may wait for a lock.
        statement_timeout: How long to wait for the server's answer.
    """

    data_source: str = field(default="Server=localhost,1433", repr=False)
    connect_timeout: Duration = 5.0
    lock_timeout: Duration = 5.0
    statement_timeout: Duration = 30.0

    def __post_init__(self) -> None:
        PortableOptions.__post_init__(self)
        self.require_times("connect_timeout", "lock_timeout", "statement_timeout")
        if any("%" in name for name in (self.table, self.fence_table, self.dead_letter_table)):
            raise ConfigError("a table's name has a % in it, which the driver takes for a parameter")
        DataSource.parse(self.data_source)

    @property
    def source(self) -> DataSource:
        """The parsed data source."""
        return DataSource.parse(self.data_source)
