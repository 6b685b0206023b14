"""The settings of the HTTP server: where it listens, and who may read."""

from dataclasses import dataclass, field
from typing import NamedTuple

from outbox_sdk.errors import ConfigError
from outbox_sdk.hosts import is_local

LEAST_TOKEN = 16
"""Characters that a token has at least; a shorter one could be guessed."""

_EXAMPLE = "write HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080"


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
class HttpSettings:
    """What the process serves over HTTP.

    Attributes:
        listen: The address; ``None`` for no server.
        viewer_tokens: Each lets its bearer read; none lets everybody read, on loopback only.
    """

    listen: str | None = None
    viewer_tokens: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        for token in self.viewer_tokens:
            if len(token) < LEAST_TOKEN or not token.isascii() or any(char.isspace() for char in token):
                raise ConfigError(
                    f"a token of viewerTokens is no use: it needs {LEAST_TOKEN} ASCII characters at least, "
                    "and no blank; make one with 'openssl rand -hex 32'"
                )
        if self.listen is None:
            return
        address = self.address
        if not self.viewer_tokens and not address.is_loopback:
            raise ConfigError(
                f"listen is {address}, which other machines may reach, and anybody could read there: "
                "set viewerTokens, or listen on 127.0.0.1"
            )

    @property
    def address(self) -> Address:
        """The address to listen on.

        Raises:
            ConfigError: ``listen`` is none, or not set.
        """
        host, colon, port = (self.listen or "").rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        if bracketed:
            host = host[1:-1]
        if not (host and colon and port.isascii() and port.isdigit() and int(port) <= 65535):  # noqa: PLR2004 - TCP's last port
            raise ConfigError(f"listen is no address: {_EXAMPLE}")
        if bracketed != (":" in host):
            raise ConfigError(f"listen is no address: an IPv6 address needs brackets; {_EXAMPLE}")
        return Address(host, int(port))
