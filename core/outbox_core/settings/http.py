"""The settings of the HTTP server: where it listens, and who may do what."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from outbox_api.base.errors import ConfigError
from outbox_api.support.file_text import FileText, present_text
from outbox_api.support.tls import is_local

LEAST_TOKEN = 16
"""Characters that a token has at least; a shorter one could be guessed."""
LONGEST_NAME = 100
"""Characters that the name of an operator or of a user has at most."""
EVERYBODY = "*"
"""Among operators: everybody who has signed in at the proxy."""

_EXAMPLE = "write HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080"
_PATH = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[\w.~-]+)*/?", re.ASCII)
"""Segments of letters that need no escapes in an address and a page; ``.`` and ``..`` are none."""

Token = str | FileText
"""A token, or the file that has it."""


class Address(NamedTuple):
    """Where a server listens.

    Attributes:
        host: A name or an IP address, without brackets.
        port: The TCP port; 0 takes a free one.
    """

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only processes of this machine reach it."""
        return is_local(self.host)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class ProxySettings:
    """A proxy that authenticates users, and names them in headers; whom it lets in may read.

    Attributes:
        addresses: Where it connects from: IP addresses and networks. Nobody else's headers count.
        user_header: The header that names the user, which the proxy sets or removes in every request.
        groups_header: The header that names the user's groups, separated by commas, likewise; ``None`` for
            none.
        operators: The users who may also change something; ``*`` for everybody who has signed in.
        operator_groups: The groups whose members may.
        sign_out: The address of the proxy at which users sign out, such as ``/oauth2/sign_out``; ``None`` for
            no link to it.
    """

    addresses: tuple[str, ...]
    user_header: str
    groups_header: str | None = None
    operators: tuple[str, ...] = ()
    operator_groups: tuple[str, ...] = ()
    sign_out: str | None = None

    def __post_init__(self) -> None:
        if not self.addresses:
            raise ConfigError("addresses names none: list the IP addresses that the proxy connects from")
        _ = self.networks
        for name in filter(None, (self.user_header, self.groups_header)):
            if not (name.isascii() and name.replace("-", "").isalnum()):
                raise ConfigError(f"'{name}' is no name of a header; write one such as X-Forwarded-User")
        if self.operator_groups and self.groups_header is None:
            raise ConfigError("operatorGroups needs groupsHeader, the header that names the user's groups")
        if self.sign_out is not None and not _is_link(self.sign_out):
            raise ConfigError(
                "signOut is no address: write a path of the proxy, such as /oauth2/sign_out, or one that "
                "begins with https://"
            )

    @property
    def networks(self) -> Sequence[IPv4Network | IPv6Network]:
        """The addresses as networks."""
        return [_network(address) for address in self.addresses]


@dataclass(frozen=True)
class HttpSettings:
    """What the process serves over HTTP.

    Attributes:
        listen: The address; ``None`` for no server.
        origin: How browsers reach the server through a proxy, such as ``https://outbox.example``; ``None`` if
            they do at the address itself.
        path: What the paths of all addresses begin with, such as ``/outbox``, where a proxy has other
            applications under the same origin; it passes the path on as it is.
        docs: Where your runbook says what to do about a problem, with ``{code}`` in place of its code;
            ``None`` for the page's own help.
        viewer_tokens: Each lets its bearer read.
        operator_tokens: The name of an operator, which the journal notes → a token that lets its bearer also
            change something.
        proxy: A proxy that authenticates users; ``None`` for none.

    Without tokens and a proxy everybody may read, on loopback only, and nobody change anything. Tokens in
    files are not read here: see :meth:`check_files`.
    """

    listen: str | None = None
    origin: str | None = None
    path: str = "/"
    docs: str | None = None
    viewer_tokens: tuple[Token, ...] = field(default=(), repr=False)
    operator_tokens: Mapping[str, Token] = field(default_factory=dict, repr=False)
    proxy: ProxySettings | None = None

    def __post_init__(self) -> None:
        self._check_tokens()
        if self.origin is not None and not _is_origin(self.origin):
            raise ConfigError(
                "origin is none: write scheme and host as in a browser's address line, without a path "
                "(that is http.path), such as https://outbox.example"
            )
        if not (self.path.startswith("/") and _PATH.fullmatch(self.path)):
            raise ConfigError(
                "path is none: write / or what addresses begin with, such as /outbox, of letters, digits, "
                "'-', '.', '_' and '~' between slashes, without '..' and without a query"
            )
        if self.docs is not None and not _is_link(self.docs):
            raise ConfigError(
                "docs is no address: write a path, or what begins with https://, such as "
                "https://wiki.example/outbox#{code}"
            )
        if self.proxy is not None and self.origin is None:
            raise ConfigError(
                "proxy needs origin, the address of the proxy that browsers show, such as "
                "https://outbox.example: requests from pages of other sites are known by it"
            )
        if self.listen is None:
            return
        address = self.address
        if self.is_open and not address.is_loopback:
            raise ConfigError(
                f"listen is {address}, which other machines may reach, and anybody could read there: "
                "set viewerTokens, operatorTokens or proxy, or listen on 127.0.0.1"
            )

    @property
    def is_open(self) -> bool:
        """Whether everybody may read who reaches the server."""
        return not (self.viewer_tokens or self.operator_tokens or self.proxy)

    @property
    def has_operators(self) -> bool:
        """Whether anybody can be an operator."""
        proxy = self.proxy
        return bool(self.operator_tokens or (proxy and (proxy.operators or proxy.operator_groups)))

    @property
    def prefix(self) -> str:
        """What all paths of the server begin with: ``path`` without a slash at its end; empty for ``/``."""
        return self.path.rstrip("/")

    def help(self, code: str) -> str:
        """Returns the address of what is to be done about a problem, by its code."""
        return f"{self.prefix}/help#{code}" if self.docs is None else self.docs.replace("{code}", code)

    @property
    def start(self) -> str | None:
        """The address of the page behind a proxy; ``None`` if there is none."""
        return None if self.origin is None else f"{self.origin}{self.prefix}/"

    @property
    def address(self) -> Address:
        """The address to listen on."""
        host, colon, port = (self.listen or "").rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        if bracketed:
            host = host[1:-1]
        if not (host and colon and port.isascii() and port.isdigit() and int(port) <= 65535):  # noqa: PLR2004 - TCP's last port
            raise ConfigError(f"listen is no address: {_EXAMPLE}")
        if bracketed != (":" in host):
            raise ConfigError(f"listen is no address: an IPv6 address needs brackets; {_EXAMPLE}")
        return Address(host, int(port))

    def _check_tokens(self) -> None:
        for name in self.operator_tokens:
            if not is_name(name):
                raise ConfigError(
                    "operatorTokens: the name of an operator is no use: the journal notes it, so write "
                    f"{LONGEST_NAME} printable characters at most, without a blank around them"
                )
        self._require_usable(files=False)

    def check_files(self) -> None:
        """Makes sure that every token is usable now, those in files too, which are not read before.

        Only what serves needs the files: an operator at the command line may not be allowed to read them.
        """
        try:
            self._require_usable(files=True)
        except ConfigError as error:
            raise ConfigError(f"http: {error}") from None

    def _require_usable(self, *, files: bool) -> None:
        named = [("viewerTokens", token) for token in self.viewer_tokens]
        named += [(f"operatorTokens.{name}", token) for name, token in self.operator_tokens.items()]
        tokens = [
            usable_token(token, key) for key, token in named if files or not isinstance(token, FileText)
        ]
        if len(set(tokens)) < len(tokens):
            raise ConfigError("two of viewerTokens and operatorTokens are the same: make one for each")


def usable_token(token: Token, key: str) -> str:
    """Returns a token as it is now; ``key`` is where it stands, for errors, which quote nothing of it."""
    text = present_text(token)
    if len(text) < LEAST_TOKEN or not text.isascii() or not text.isprintable() or " " in text:
        files = token.parts if isinstance(token, FileText) else ()
        paths = ", ".join(f"'{part}'" for part in files if isinstance(part, Path))
        where = f" (the file {paths})" if paths else ""
        raise ConfigError(
            f"a token of {key}{where} is no use: it needs {LEAST_TOKEN} ASCII characters at least, "
            "and no blank; make one with 'openssl rand -hex 32'"
        )
    return text


def is_name(text: str) -> bool:
    """Returns whether a text can name an operator or a user in the journal and in log lines."""
    return 0 < len(text) <= LONGEST_NAME and text.isprintable() and text == text.strip()


def _network(address: str) -> IPv4Network | IPv6Network:
    try:
        network = ip_network(address.strip())
    except ValueError:
        raise ConfigError(
            f"addresses: '{address}' is neither an IP address nor a network; write 10.1.2.3, or 10.1.2.0/24 "
            "with zeros behind its length"
        ) from None
    if network.prefixlen == 0:
        raise ConfigError(f"addresses: {network} is everybody, who could name any user: list the proxies")
    if isinstance(network, IPv6Network) and network.network_address.ipv4_mapped is not None:
        raise ConfigError(f"addresses: write {network.network_address.ipv4_mapped} as an IPv4 address")
    return network


def _is_link(text: str) -> bool:
    """Returns whether a browser may be led there: to a path of the same host, or over TLS to another one."""
    return text.isprintable() and " " not in text and re.match(r"/(?![/\\])|https://[^/]", text) is not None


def _is_origin(text: str) -> bool:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    given = host if port is None else f"{host}:{port}"
    return parts.scheme in {"http", "https"} and bool(host) and text.lower() == f"{parts.scheme}://{given}"
