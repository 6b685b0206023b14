"""What a user may set beside ``driver: oracle``."""

from __future__ import annotations

from dataclasses import dataclass, field

from outbox_sdk import ConfigError, Duration
from outbox_sdk.portable import PortableOptions, TableName

from outbox_oracle.names import table_name
from outbox_oracle.source import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleOptions(PortableOptions):
    """Options of the Oracle dialect; unquoted names of tables fold to upper case, as in SQL.

    Attributes:
        data_source: ``oracle://user:password@host:1521/service``, ``user/password@`` and an easy connect
            string or a TNS alias, or these without credentials.
        user: The user, where the data source names none.
        password: The password, where the data source holds none.
        config_dir: Where ``tnsnames.ora`` is; empty for where the driver looks.
        wallet_location: The folder of a wallet with ``ewallet.pem``; empty for none.
        wallet_password: The wallet's password.
        connect_timeout: How long to try to connect to each address.
        statement_timeout: How long a statement may take, its waits included; 0 for any time.
    """

    data_source: str = field(default="localhost:1521/FREEPDB1", repr=False)
    user: str = ""
    password: str = field(default="", repr=False)
    config_dir: str = ""
    wallet_location: str = ""
    wallet_password: str = field(default="", repr=False)
    connect_timeout: Duration = 5.0
    statement_timeout: Duration = 30.0

    def __post_init__(self) -> None:
        PortableOptions.__post_init__(self)
        for name in ("connect_timeout", "statement_timeout"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)} s; it cannot be negative")
        Source.parse(self.data_source)

    @property
    def source(self) -> Source:
        """The data source, with the credentials that stand beside it."""
        source = Source.parse(self.data_source)
        return Source(source.dsn, source.user or self.user, source.password or self.password)

    @property
    def outbox(self) -> TableName:
        """The outbox table's name."""
        return table_name(self.table)

    @property
    def fence(self) -> TableName:
        """The fence table's name, in the outbox's schema unless it names its own."""
        return table_name(self.fence_table).within(self.outbox.schema)

    @property
    def dead_letters(self) -> TableName:
        """The name of the table of dead letters, in the outbox's schema unless it names its own."""
        return table_name(self.dead_letter_table).within(self.outbox.schema)
