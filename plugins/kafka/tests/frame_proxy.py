"""A TCP proxy in front of a broker that delays one request until the test releases it, or alters frames."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from threading import Event, Thread

PRODUCE = 0
"""The API key of a Produce request."""


class FrameProxy:
    """Forwards connections, request by request; a held request outlives the connection of its client.

    Args:
        target: Returns the broker's port.

    Attributes:
        port: Where it listens.
        held: Set while a request is held.
        alter: Returns what clients get for a piece of an answer, of the same length.
        alter_request: Returns what the broker gets for a request; those behind it on the connection wait.
    """

    def __init__(self, target: Callable[[], int]) -> None:
        self.held = Event()
        self._target = target
        self.alter: Callable[[bytes], bytes] = bytes
        self.alter_request: Callable[[bytes], bytes] = bytes
        self._kind: int | None = None
        self._go = Event()
        self._client: socket.socket | None = None
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        Thread(target=self._accept, daemon=True).start()

    def hold(self, kind: int) -> None:
        """Holds the next request of a kind, and everything behind it on the same connection."""
        self._go.clear()
        self.held.clear()
        self._kind = kind

    def cut(self) -> None:
        """Closes the client's connection that carries the held request."""
        assert self._client is not None
        self._client.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        """Forwards the held request."""
        self._go.set()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._socket.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._target()))
                except OSError:
                    client.close()
                    continue
                Thread(target=self._ask, args=(client, server), daemon=True).start()
                Thread(target=self._answer, args=(client, server), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError), client.makefile("rb") as requests:
            while len(head := requests.read(4)) == 4:
                request = requests.read(int.from_bytes(head))
                if int.from_bytes(request[:2]) == self._kind:
                    self._kind, self._client = None, client
                    self.held.set()
                    self._go.wait()
                request = self.alter_request(request)
                server.sendall(len(request).to_bytes(4) + request)
            server.shutdown(socket.SHUT_WR)

    def _answer(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError), client, server:
            while answer := server.recv(65536):
                with contextlib.suppress(OSError):
                    client.sendall(self.alter(answer))


_UNSENT_SECONDS = 0.3
"""Seconds in which a client sends the requests behind one that is under way."""


def first_refused(topic: str, client: str = "") -> Callable[[bytes], bytes]:
    """Returns how to alter requests so that the broker refuses the first Produce request to a topic.

    It refuses as a broker does that does not lead the partition yet, or no more. By then the client has sent
    the next requests, which the broker takes.

    Args:
        topic: A topic with one partition.
        client: Part of the client's id.
    """
    name = bytes([len(topic) + 1]) + topic.encode()
    partition, missing = (name + b"\x02" + number.to_bytes(4) for number in (0, 99))
    refused = False

    def alter(request: bytes) -> bytes:
        nonlocal refused
        if refused or partition not in request or client.encode() not in request:
            return request
        refused = True
        time.sleep(_UNSENT_SECONDS)
        return request.replace(partition, missing, 1)

    return alter
