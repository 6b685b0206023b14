"""The options of ``driver: oracle``."""

from __future__ import annotations

from dataclasses import dataclass, field

from outbox_sdk import Duration, FileText, present_text
from outbox_sdk.password import only_password
from outbox_sdk.portable import PortableOptions, TableName
from outbox_sdk.portable.outboxes import TablePattern

from outbox_oracle.data_source import DataSource
from outbox_oracle.names import plain, table_name


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleOptions(PortableOptions):
    """Options of the Oracle dialect; unquoted names of tables fold to upper case, as in SQL.

    Attributes:
        data_source: ``oracle://user:password@host:1521/service``, ``user/password@`` and an easy connect
            string or a TNS alias, or these without credentials.
        user: The user, where the data source names none.
        password: The password, instead of one in the data source; taken as it is.
        config_dir: Where ``tnsnames.ora`` is; empty for where the driver looks.
        wallet_location: The folder of a wallet with ``ewallet.pem``; empty for none.
        wallet_password: The wallet's password.
        connect_timeout: How long to try to connect to each address.
        statement_timeout: How long a statement may take, its waits included; 0 for any time.
    """

    data_source: str | FileText = field(default="localhost:1521/FREEPDB1", repr=False)
    user: str = ""
    password: str | FileText | None = field(default=None, repr=False)
    config_dir: str = ""
    wallet_location: str = ""
    wallet_password: str | FileText = field(default="", repr=False)
    connect_timeout: Duration = 5.0
    statement_timeout: Duration = 30.0

    def __post_init__(self) -> None:
        PortableOptions.__post_init__(self)
        self.require_times("connect_timeout", "statement_timeout", zero=True)
        _ = self.source  # it is valid

    @property
    def source(self) -> DataSource:
        """The present data source, parsed, completed by ``user`` and ``password``.

        Raises:
            ConfigError: It is malformed, has a second password, or is in a file that cannot be read.
        """
        source = DataSource.parse(present_text(self.data_source))
        password = only_password(self.password, source.password)
        return DataSource(source.dsn, source.user or self.user, password)

    @classmethod
    def table_name(cls, text: str) -> TableName:
        """Reads a table's name; unquoted parts fold to upper case."""
        return table_name(text)

    @classmethod
    def table_pattern(cls, text: str) -> TablePattern:
        """Reads a pattern of tables' names."""
        return TablePattern(text, cls.table_name, plain)
