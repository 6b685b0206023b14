"""A TCP proxy on 127.0.0.1 that can fall silent, as a broken network does."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Self

_CHUNK = 65536


class Proxy:
    """Forwards every connection to a server; a context manager that closes it.

    Attributes:
        port: The port on which it listens.
    """

    def __init__(self, target: Callable[[], int]) -> None:
        """Listens from now on.

        Args:
            target: Returns the server's port on 127.0.0.1; called for each connection.
        """
        self._target = target
        self._speaking = Event()
        self._speaking.set()
        self._sockets: set[socket.socket] = set()
        self._lock = Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [Thread(target=self._accept, name=f"proxy-{self.port}", daemon=True)]
        self._threads[0].start()

    def silence(self) -> None:
        """Forwards nothing until :meth:`speak`; connections stay open, and new ones are accepted."""
        self._speaking.clear()

    def speak(self) -> None:
        """Forwards again, first what was withheld."""
        self._speaking.set()

    def cut(self) -> None:
        """Ends all connections; new ones are accepted."""
        with self._lock:
            open_sockets = list(self._sockets)
        for each in open_sockets:
            _end(each)

    def close(self) -> None:
        """Stops listening and ends all connections. Idempotent."""
        _end(self._listener)
        self.cut()
        self._speaking.set()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                break
            try:
                server = socket.create_connection(("127.0.0.1", self._target()))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._sockets |= {client, server}
            for source, sink in ((client, server), (server, client)):
                pump = Thread(target=self._forward, args=(source, sink), daemon=True)
                self._threads.append(pump)
                pump.start()
        self._listener.close()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                self._speaking.wait()
                sink.sendall(data)
        _end(sink)
        with self._lock:
            self._sockets.discard(source)
        source.close()


def _end(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
