"""The options of ``driver: sqlserver``, and what the driver takes of a connection string or a URL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Final

from outbox_api import ConfigError, Duration, FileText, present_text
from outbox_api.portable import PortableOptions
from outbox_api.portable.url import read_url
from outbox_api.support.file_text import only_password

PORT: Final = 1433

_KEYS: Final = {
    "server": ("server", "data source", "address", "addr", "network address", "host"),
    "port": ("port",),
    "database": ("database", "initial catalog"),
    "user": ("uid", "user id", "user", "username"),
    "password": ("pwd", "password"),
    "encrypt": ("encrypt",),
    "trust": ("trustservercertificate", "trust server certificate"),
    "ca_file": ("cafile", "servercertificate"),
    "name": ("hostnameincertificate", "host name in certificate"),
    # Keys for other drivers, which are ignored.
    "": (
        "driver",
        "app",
        "application name",
        "multisubnetfailover",
        "mars_connection",
        "persist security info",
    ),
}
_MEANT: Final = {synonym: key for key, synonyms in _KEYS.items() for synonym in synonyms}
_PAIR: Final = re.compile(r"\s*([^=;]+?)\s*=\s*(\{(?:[^}]|\}\})*\}|\"[^\"]*\"|'[^']*'|[^;]*)\s*(?:;|$)")
_YES: Final = ("yes", "true", "1", "mandatory")
_NO: Final = ("no", "false", "0", "optional")


@dataclass(frozen=True, slots=True)
class DataSource:
    """A parsed data source; empty is what it leaves open."""

    host: str
    port: int  # 0 to ask the server's browser service for that of ``instance``
    instance: str
    database: str
    user: str
    password: str = field(repr=False)
    encrypt: bool
    trust: bool  # any certificate
    ca_file: str  # of authorities, instead of the system's
    name: str  # the host name that the certificate must be for

    @classmethod
    def parse(cls, text: str) -> DataSource:
        """Parses a data source.

        Raises:
            ConfigError: It is malformed, or has an unknown key. The message contains no secrets.
        """
        said = _of_url(text.strip()) if "://" in text.partition(";")[0] else _of_pairs(text)
        host, instance, port = _server(said.get("server", "localhost"), said.get("port", ""))
        return cls(
            host,
            port,
            instance,
            said.get("database", ""),
            said.get("user", ""),
            said.get("password", ""),
            _flag("Encrypt", said.get("encrypt", "yes")),
            _flag("TrustServerCertificate", said.get("trust", "no")),
            said.get("ca_file", ""),
            said.get("name", host),
        )

    @property
    def address(self) -> str:
        """The database in words, without secrets."""
        database = f"database '{self.database}'" if self.database else "the default database"
        instance = f"\\{self.instance}" if self.instance else ""
        return f"SQL Server {database} at {self.host}{instance}{f':{self.port}' if self.port else ''}"


def _of_url(text: str) -> Mapping[str, str]:
    url = read_url(text, "mssql", "sqlserver")
    said = {
        "server": url.host,
        "port": str(url.port or ""),
        "database": url.database,
        "user": url.user,
        "password": url.password,
    }
    meant = _meant([pair for pair in url.query if pair[1]])
    return {key: value for key, value in said.items() if value} | meant


def _of_pairs(text: str) -> Mapping[str, str]:
    pairs, at = [], 0
    text = text.strip().rstrip(";")
    while at < len(text):
        pair = _PAIR.match(text, at)
        if not pair:
            raise ConfigError(
                "dataSource is written Server=host,1433;Database=shop;Uid=outbox;Pwd=…; a value with a ; "
                "stands in braces"
            )
        value = pair[2].strip()
        if value[:1] in ("{", '"', "'"):
            value = value[1:-1].replace("}}", "}")
        pairs.append((pair[1], value))
        at = pair.end()
    return _meant(pairs)


def _meant(pairs: list[tuple[str, str]]) -> dict[str, str]:
    said: dict[str, str] = {}
    for key, value in pairs:
        meant = _MEANT.get(key.strip().lower())
        if meant is None:
            # What is behind a ; in a password looks like a key.
            close = get_close_matches(key.strip().lower(), _MEANT, n=1, cutoff=0.8)
            hint = f"did you mean '{close[0]}'?" if close else "a value with a ; stands in braces"
            raise ConfigError(f"dataSource says a key that the dialect does not know; {hint}")
        if meant:
            said.setdefault(meant, value)
    return said


def _server(text: str, port: str) -> tuple[str, str, int]:
    host, comma, behind = text.removeprefix("tcp:").partition(",")
    host, _, instance = host.partition("\\")
    number = (behind if comma else port).strip()
    if number and not number.isdecimal():
        raise ConfigError("the server's port in dataSource is no number")
    host = {".": "localhost", "(local)": "localhost"}.get(host.strip(), host.strip())
    return host, instance.strip(), int(number) if number else 0 if instance else PORT


def _flag(name: str, value: str) -> bool:
    if value.lower() not in (*_YES, *_NO):
        raise ConfigError(f"{name} in dataSource can be yes or no")
    return value.lower() in _YES


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
