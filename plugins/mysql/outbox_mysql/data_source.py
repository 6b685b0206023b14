"""Parses the data source: ``mysql://user:password@host:3306/database?ssl-ca=…``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final, NoReturn
from urllib.parse import parse_qsl, unquote, urlsplit

from outbox_sdk import ConfigError

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
_PORTS: Final = range(1, 65536)
_FORM: Final = (
    "write mysql://user:password@host:3306/database, with what is neither letter nor digit in the user's "
    "name and password percent-encoded (a slash is %2F, an @ is %40)"
)


@dataclass(frozen=True, slots=True)
class DataSource:
    """A parsed data source. Empty and 0 are what it leaves open.

    Attributes:
        server: ``MySQL`` or ``MariaDB``, as the scheme says; either connects to both.
        host: The host's name or IP address.
        port: The TCP port.
        user: The account.
        password: Its password.
        database: The default database.
        query: The options behind the question mark, by the names of MySQL's own options.
    """

    server: str
    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str
    query: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> DataSource:
        """Parses a data source.

        Raises:
            ConfigError: It is malformed; the message quotes nothing of it, as it may contain a password.
        """
        try:
            parts = urlsplit(text.strip())
            port = parts.port or 0
            host = parts.hostname or ""
        except ValueError:
            _refuse("it cannot be read")
        scheme, _, driver = parts.scheme.partition("+")
        if scheme not in SCHEMES or driver not in ("", "pymysql"):
            _refuse("it begins with neither mysql:// nor mariadb://")
        if parts.fragment:
            _refuse("it has a # in it")
        if "@" in f"{parts.path}{parts.query}":
            # The user's password has a slash or a question mark, and what follows is a piece of it.
            _refuse("it has an @ behind the server's address")
        return cls(
            SCHEMES[scheme],
            unquote(host),
            port,
            unquote(parts.username or ""),
            unquote(parts.password or ""),
            unquote(parts.path.removeprefix("/")),
            _options(parts.query),
        )

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


def _options(query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
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


def _refuse(reason: str) -> NoReturn:
    raise ConfigError(f"dataSource is no address of a MySQL or MariaDB database: {reason}; {_FORM}") from None
