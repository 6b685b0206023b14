"""Where the server listens, and what ``outbox check`` says of it; without the server's libraries."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

from outbox_api.base.errors import ConfigError, OutboxError
from outbox_api.base.finding import Finding, Level
from outbox_api.support.tls import is_local
from outbox_core.cli.extras import check_tokens
from outbox_core.settings.http import Address, HttpSettings

_TLS = (
    "put a proxy with TLS before it, name its address in http.origin (https://…), and have other machines "
    "reach the proxy only"
)


def listen(address: Address) -> socket.socket:
    """Returns a socket that listens."""
    try:
        family, _, _, _, place = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.create_server(place[:2], family=family)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise OutboxError(
                f"http.listen: {address} is in use: choose another port, or end the process that has it"
            ) from error
        if error.errno in {errno.EACCES, errno.EPERM}:
            raise ConfigError(
                f"http.listen: this user may not listen on {address}: take a port from 1024 on"
            ) from error
        raise ConfigError(
            f"http.listen: cannot listen on {address} ({error.strerror}): name an address of this machine"
        ) from error
    # asyncio sets it only on sockets made with a protocol number; without it the second answer of a
    # connection waits 40 ms for the client's delayed acknowledgement.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def check_http(http: HttpSettings) -> Iterator[Finding]:
    """Says whether the server can start, and what of it is unsafe; nothing where nothing is served."""
    if http.listen is None:
        return
    yield _port(http)
    yield from check_tokens(http)
    if http.is_open:
        yield Finding(
            Level.OK, "who may", "everybody on this machine reads; nobody changes anything: there is no token"
        )
        return
    origin = urlsplit(http.origin or "")
    if origin.scheme == "http" and not is_local(origin.hostname or ""):
        yield Finding(Level.WARNING, "TLS", f"browsers send tokens to {http.origin} in clear", _TLS)
    elif origin.scheme != "https" and not http.address.is_loopback:
        yield Finding(
            Level.WARNING,
            "TLS",
            f"tokens cross the network in clear, as other machines may reach {http.address}",
            _TLS,
        )
    else:
        through = f"through {http.origin}{http.prefix}" if http.origin else "from this machine"
        yield Finding(Level.OK, "TLS", f"clients are to come {through}")


def _port(http: HttpSettings) -> Finding:
    try:
        listen(http.address).close()
    except ConfigError as error:
        return Finding(Level.ERROR, "address", str(error), "correct http.listen")
    except OutboxError as error:
        cure = "leave it as it is if that is a harvester with this configuration; else choose another port"
        return Finding(Level.WARNING, "address", str(error), cure)
    return Finding(Level.OK, "address", f"{http.address} is free")
