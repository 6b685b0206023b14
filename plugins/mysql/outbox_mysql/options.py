"""The options of ``driver: mysql``: the data source, and how well it protects the connection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Final

from outbox_api import ConfigError, Duration, FileText, Finding, present_text
from outbox_api.portable import PortableOptions, Session
from outbox_api.portable.url import read_url
from outbox_api.support.file_text import only_password
from outbox_api.support.tls import Protection, transport_finding

SCHEMES: Final = {"mysql": "MySQL", "mariadb": "MariaDB"}
"""Scheme of the URL, optionally with SQLAlchemy's ``+pymysql`` → the server's name."""

TLS: Final = ("DISABLED", "PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")
"""The modes of ``ssl-mode``, by MySQL's names."""

_KEYS: Final = (
    "charset",
    "read-default-file",
    "read-default-group",
    "ssl-ca",
    "ssl-capath",
    "ssl-cert",
    "ssl-key",
    "ssl-mode",
    "unix-socket",
)
_SYNONYMS: Final = {"socket": "unix-socket", "defaults-file": "read-default-file"}


@dataclass(frozen=True, slots=True)
class DataSource:
    """A parsed data source. Empty and 0 are what it leaves open."""

    server: str  # as the scheme says; either connects to both
    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str
    query: Mapping[str, str]  # by the names of MySQL's own options

    @classmethod
    def parse(cls, text: str) -> DataSource:
        """Parses a data source.

        Raises:
            ConfigError: It is malformed; the message quotes nothing of it, as it may contain a password.
        """
        url = read_url(text, *SCHEMES)
        server, query = SCHEMES[url.scheme], _options(url.query)
        return cls(server, url.host, url.port, url.user, url.password, url.database, query)

    @property
    def tls(self) -> str:
        """The mode of TLS; as for MySQL's own clients, ``ssl-ca`` implies that certificates are verified."""
        implied = "VERIFY_CA" if {"ssl-ca", "ssl-capath"} & self.query.keys() else "PREFERRED"
        return self.query.get("ssl-mode", implied).upper()

    @property
    def address(self) -> str:
        """The server and the database in words, without secrets."""
        database = f"{self.server} database '{self.database}'" if self.database else self.server
        if socket := self.query.get("unix-socket"):
            return f"{database} at {socket}"
        if file := self.query.get("read-default-file"):
            return f"{database} of {file}" if not self.host else f"{database} at {self.host}"
        return f"{database} at {self.host or 'localhost'}:{self.port or 3306}"


def _options(query: Iterable[tuple[str, str]]) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in query:
        key = name.lower().replace("_", "-")
        key = _SYNONYMS.get(key, key)
        if key not in _KEYS:
            close = get_close_matches(key, _KEYS, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(_KEYS)}"
            raise ConfigError(f"dataSource has an option that is not known; {hint}")
        options[key] = value
    if options.get("ssl-mode", TLS[0]).upper() not in TLS:
        raise ConfigError(f"ssl-mode in dataSource can be {', '.join(TLS)}")
    if options.pop("charset", "utf8mb4").lower() != "utf8mb4":
        raise ConfigError("charset in dataSource can be utf8mb4 only, which holds every text; leave it out")
    if ("ssl-key" in options) > ("ssl-cert" in options):
        raise ConfigError("dataSource has ssl-key without ssl-cert; a client's certificate needs both")
    return options


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


_CURE = (
    "set ssl-mode=VERIFY_IDENTITY and ssl-ca=FILE in dataSource, with the certificate of the authority that "
    "signed the server's"
)


def transport(session: Session, options: MySqlOptions) -> Sequence[Finding]:
    """Judges what became of the connection: the mode PREFERRED may give either."""
    [(_, cipher)] = session.query("look at the encryption", "SHOW STATUS LIKE 'Ssl_cipher'")
    connection, mode = session.connection, options.source.tls
    if not cipher:
        server = "" if mode == "DISABLED" else ", and the server offers no TLS: switch it on there"
        setting, protection = f"ssl-mode is {mode}{server}", Protection.NONE
    else:
        weaker = ", which takes a connection in clear as well" if mode == "PREFERRED" else ""
        setting, protection = f"ssl-mode is {mode}{weaker}", _protection(connection.ctx)
    # A file of defaults may name the host, or the socket.
    return transport_finding([connection.unix_socket or connection.host], protection, setting, _CURE)


def _protection(context: object) -> Protection:
    import ssl  # noqa: PLC0415 - not every Python has it

    if not isinstance(context, ssl.SSLContext) or context.verify_mode is ssl.CERT_NONE:
        return Protection.ENCRYPTED
    return Protection.VERIFIED if context.check_hostname else Protection.AUTHORITY
