"""Parses the data source into what the driver takes. No message quotes it, as it may hold passwords."""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from outbox_sdk import ConfigError

PORTS = {"tcp": 1521, "tcps": 2484}


class DataSource(NamedTuple):
    """A database and who connects to it.

    Attributes:
        dsn: An easy connect string, a TNS alias, or a whole descriptor; without credentials.
        user: The user, or empty.
        password: The password, or empty.
    """

    dsn: str
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


def _refuse() -> NoReturn:
    raise ConfigError("dataSource is not a URL that can be read; a password is written %-encoded") from None


def _of_url(text: str) -> DataSource:
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        _refuse()
    if "@" in f"{url.path}{url.query}{url.fragment}":
        # The password has a slash, a question mark or a hash, and what follows is a piece of it.
        _refuse()
    settings = dict(parse_qsl(url.query))
    protocol = settings.pop("protocol", "tcps" if settings.pop("ssl", "") in ("true", "yes", "1") else "tcp")
    service = unquote(url.path.strip("/")) or settings.pop("service_name", "")
    if protocol not in PORTS:
        raise ConfigError("the protocol in dataSource can be tcp or tcps")
    if not url.hostname or not service:
        raise ConfigError("dataSource names no host, or no service: oracle://user:password@host:1521/service")
    host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
    rest = "&".join(f"{name}={quote(value, safe='/:.,-_')}" for name, value in settings.items())
    dsn = f"{protocol}://{host}:{port or PORTS[protocol]}/{service}{f'?{rest}' if rest else ''}"
    return DataSource(dsn, unquote(url.username or ""), unquote(url.password or ""))
