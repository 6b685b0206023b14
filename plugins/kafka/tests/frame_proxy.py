"""A TCP proxy in front of a broker that delays one request until the test releases it, or alters answers."""

from __future__ import annotations

import contextlib
import socket
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
    """

    def __init__(self, target: Callable[[], int]) -> None:
        self.held = Event()
        self._target = target
        self.alter: Callable[[bytes], bytes] = bytes
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
                server.sendall(head + request)
            server.shutdown(socket.SHUT_WR)

    def _answer(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError), client, server:
            while answer := server.recv(65536):
                with contextlib.suppress(OSError):
                    client.sendall(self.alter(answer))
