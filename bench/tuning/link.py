"""A TCP proxy that delays data in both directions, however much there is of it."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread

_CHUNK = 1 << 18


class Link:
    """Forwards every connection to a server on 127.0.0.1.

    Args:
        target: Returns the server's port; called for each connection.
        seconds: Of a round trip. May be changed: data that has come keeps its delay.

    Attributes:
        port: Where it listens.
    """

    def __init__(self, target: Callable[[], int], seconds: float = 0.0) -> None:
        self.seconds = seconds
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accepts no more connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            Thread(target=self._forward, args=(client,), daemon=True).start()

    def _forward(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._target())) as server:
            threads = []
            for source, sink in (client, server), (server, client):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                late = SimpleQueue[tuple[float, bytes]]()
                threads.append(Thread(target=self._take, args=(source, late), daemon=True))
                threads.append(Thread(target=_give, args=(late, sink), daemon=True))
            for each in threads:
                each.start()
            for each in threads:
                each.join()

    def _take(self, source: socket.socket, late: SimpleQueue[tuple[float, bytes]]) -> None:
        data = b"more"
        while data:
            try:
                data = source.recv(_CHUNK)
            except OSError:
                data = b""
            late.put((time.monotonic() + self.seconds / 2, data))


def _give(late: SimpleQueue[tuple[float, bytes]], sink: socket.socket) -> None:
    while True:
        due, data = late.get()
        time.sleep(max(0.0, due - time.monotonic()))
        try:
            if not data:
                sink.shutdown(socket.SHUT_WR)
                return
            sink.sendall(data)
        except OSError:  # that end is gone: its own thread ends the other
            return
