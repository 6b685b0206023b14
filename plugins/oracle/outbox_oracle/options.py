"""The options of ``driver: oracle``. No message quotes the data source, as it may hold passwords."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import quote

from outbox_api import ConfigError, Duration, FileText, present_text
from outbox_api.portable import PortableOptions, TableName
from outbox_api.portable.outboxes import TablePattern
from outbox_api.portable.url import read_url
from outbox_api.support.file_text import only_password

PORTS = {"tcp": 1521, "tcps": 2484}


class DataSource(NamedTuple):
    """A database and who connects to it; empty is what it leaves open."""

    dsn: str  # an easy connect string, a TNS alias, or a whole descriptor; without credentials
    user: str
    password: str

    @classmethod
    def parse(cls, text: str) -> DataSource:
        """Parses a URL, or ``user/password@`` before a connect string, or a connect string alone.

        Raises:
            ConfigError: It is an incomplete URL. The message contains no secrets.
        """
        text = text.strip()
        if text.partition("://")[0].partition("+")[0].lower() == "oracle":
            return _of_url(text)
        if text.startswith("(") or "@" not in text:
            return cls(text, "", "")
        credentials, _, dsn = text.rpartition("@")
        user, _, password = credentials.partition("/")
        return cls(dsn, user, password[1:-1] if password[:1] == password[-1:] == '"' else password)

    @property
    def address(self) -> str:
        """The database in words, without secrets: of a descriptor its first host, port and service."""
        if not self.dsn.startswith("("):
            return self.dsn.partition("?")[0] or "the default address"
        host, port, service = (_first(name, self.dsn) for name in ("HOST", "PORT", "SERVICE_NAME|SID"))
        return f"{host or 'the address of a descriptor'}{port and f':{port}'}{service and f'/{service}'}"


def _first(name: str, descriptor: str) -> str:
    found = re.search(rf"\(\s*(?:{name})\s*=\s*([\w.:\[\]$#-]+)\s*\)", descriptor, re.IGNORECASE)
    return found[1] if found else ""


def _of_url(text: str) -> DataSource:
    url = read_url(text, "oracle")
    settings = {name: value for name, value in url.query if value}
    protocol = settings.pop("protocol", "tcps" if settings.pop("ssl", "") in ("true", "yes", "1") else "tcp")
    service = url.database or settings.pop("service_name", "")
    if protocol not in PORTS:
        raise ConfigError("the protocol in dataSource can be tcp or tcps")
    if not url.host or not service:
        raise ConfigError("dataSource names no host, or no service: oracle://user:password@host:1521/service")
    host = f"[{url.host}]" if ":" in url.host else url.host
    rest = "&".join(f"{name}={quote(value, safe='/:.,-_')}" for name, value in settings.items())
    dsn = f"{protocol}://{host}:{url.port or PORTS[protocol]}/{service}{f'?{rest}' if rest else ''}"
    return DataSource(dsn, url.user, url.password)


_QUOTED = re.compile(r'"(?:[^"]|"")+"')


def table_name(text: str) -> TableName:
    """Reads ``table`` or ``schema.table``: unquoted parts fold to upper case, quoted ones keep their quotes.

    Raises:
        ConfigError: It is neither.
    """
    TableName.parse(text)  # complains
    parts, at = [], 0
    text = text.strip()
    for quoted in _QUOTED.finditer(text):
        parts += [part.upper() for part in text[at : quoted.start()].split(".") if part]
        parts.append(quoted[0])
        at = quoted.end()
    parts += [part.upper() for part in text[at:].split(".") if part]
    return TableName(parts[0] if len(parts) > 1 else "", parts[-1])


def quoted(name: str) -> str:
    """Writes a name so that Oracle takes it as it is; one that is not quoted yet folds to upper case."""
    return name if _QUOTED.fullmatch(name) else '"' + name.upper().replace('"', '""') + '"'


def plain(name: str) -> str:
    """Returns a name as the data dictionary has it."""
    return quoted(name)[1:-1].replace('""', '"')


def canonical(name: str) -> str:
    """Returns the one way to write a name: without quotes where Oracle folds it to itself."""
    bare = plain(name)
    return bare if bare == bare.upper() and '"' not in bare else quoted(name)


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
