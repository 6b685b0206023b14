"""The socket that the server listens on; without the server's libraries, so that ``outbox check`` can try."""

from __future__ import annotations

import errno
import socket

from outbox_core.config.http import Address
from outbox_sdk import ConfigError, OutboxError


def listen(address: Address) -> socket.socket:
    """Returns a socket that listens.

    Raises:
        ConfigError: There is no such address here, or this user may not use the port.
        OutboxError: Another process listens there.
    """
    try:
        family, _, _, _, place = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(place[:2], family=family)
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
