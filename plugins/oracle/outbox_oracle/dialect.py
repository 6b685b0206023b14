"""The Oracle dialect: connections, and what they are set to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from outbox_sdk import Capability, Finding
from outbox_sdk.portable import Idiom, PortableDialect, Session, TableName

from outbox_oracle.check import findings
from outbox_oracle.ddl import tables
from outbox_oracle.idiom import OracleIdiom
from outbox_oracle.names import canonical
from outbox_oracle.options import OracleOptions
from outbox_oracle.session import OracleSession

SETTINGS = (
    # Texts are compared byte for byte, and moments that come without a zone are UTC.
    "ALTER SESSION SET NLS_COMP = BINARY NLS_SORT = BINARY TIME_ZONE = '+00:00'",
    # A commit returns when its redo is on the disk, whatever the instance prefers.
    "ALTER SESSION SET COMMIT_WAIT = FORCE_WAIT COMMIT_LOGGING = IMMEDIATE",
    "ALTER SESSION SET ISOLATION_LEVEL = READ COMMITTED",
)
"""What every session of the dialect is set to."""

CAPABILITIES = frozenset(
    {
        Capability.BYTES_VALUES,
        Capability.CONCURRENT_DDL,
        Capability.CONCURRENT_WRITERS,
        Capability.INTAKE,
    }
)

KEEPALIVE = 1  # minutes between looks at an idle connection


class OracleDialect(PortableDialect):
    """An outbox in an Oracle database."""

    idiom: ClassVar[Idiom] = OracleIdiom()
    options: OracleOptions

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What the database can do beyond the contract."""
        return CAPABILITIES

    @property
    def place(self) -> str:
        """The database's address, without credentials."""
        return f"Oracle database at {self.options.source.place}"

    @property
    def secrets(self) -> Sequence[str]:
        """The passwords."""
        return [secret for secret in (self.options.source.password, self.options.wallet_password) if secret]

    def open(self) -> Any:
        """Opens a connection whose commits wait for the disk, and which reads what is committed."""
        connection = self.open_plain()
        try:
            connection.call_timeout = int(self.options.statement_timeout * 1000)
            connection.outputtypehandler = _whole
            with connection.cursor() as cursor:
                for setting in SETTINGS:
                    cursor.execute(setting)
        except BaseException:
            connection.close()
            raise
        return connection

    def open_plain(self) -> Any:
        """Opens a connection as an application would have."""
        import oracledb  # noqa: PLC0415 - only who connects needs it

        options, source = self.options, self.options.source
        # Given as nothing, a setting would still override what the connect string says.
        given = {
            "user": source.user,
            "password": source.password,
            "tcp_connect_timeout": options.connect_timeout,
            "config_dir": options.config_dir,
            "wallet_location": options.wallet_location,
            "wallet_password": options.wallet_password,
        }
        try:
            return oracledb.connect(
                dsn=source.dsn,
                expire_time=KEEPALIVE,
                **{name: value for name, value in given.items() if value},
            )
        except OSError as error:  # a name that cannot be resolved passes through the driver as it is
            raise oracledb.OperationalError(f"cannot reach it: {error}") from error

    def tables(self) -> Mapping[TableName, Sequence[str]]:
        """Returns the statements that create outbox, fence and dead letters, by table."""
        return tables(self.options, self.idiom)

    def known(self, session: Session) -> TableName:
        """Returns the outbox's name with its schema."""
        table = self.options.outbox
        with session.transaction("ask for the schema"):
            rows = session.fetch("SELECT SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA') FROM dual")
        named = table.within(f'"{rows[0][0]}"') if rows else table
        return TableName(*(canonical(part) if part else "" for part in named))

    def findings(self, session: Session) -> Iterator[Finding]:
        """Judges version, character set, durability, privileges and the ids."""
        return findings(session, self.options)

    def _session(self) -> Session:
        with self._translated("connect"):
            return OracleSession(self.open(), self.idiom, self.place, self.secrets)


def _whole(cursor: Any, metadata: Any) -> Any:
    """Has large objects fetched with their rows, instead of a round trip for each."""
    import oracledb  # noqa: PLC0415 - as above

    kinds = {
        oracledb.DB_TYPE_CLOB: oracledb.DB_TYPE_LONG,
        oracledb.DB_TYPE_NCLOB: oracledb.DB_TYPE_LONG_NVARCHAR,
        oracledb.DB_TYPE_BLOB: oracledb.DB_TYPE_LONG_RAW,
    }
    kind = kinds.get(metadata.type_code)
    return kind and cursor.var(kind, arraysize=cursor.arraysize)
