"""A TCP proxy that keeps a request, has its client give up, and delivers it to the server much later."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable
from threading import Event, Lock, Thread
from time import monotonic
from typing import Self

_CHUNK = 1 << 16
_REST_SECONDS = 0.2
"""For how long the rest of a request may come behind its first part."""
_KEPT_SECONDS = 30.0
_ANSWER_SECONDS = 0.4
"""After so long without a further word the server has answered."""
_SILENT_SECONDS = 5.0
"""For so long the server may say nothing at all."""

_HEAD = 4
"""The bytes of a length of Kafka's."""

Match = Callable[[bytes], bool]
Length = Callable[[bytes], int]
"""Returns how long the first request in what has come is; 0 until it is complete."""


def kafka_length(data: bytes) -> int:
    """Returns the length of the first request in what a client of Kafka has sent; 0 until it is complete."""
    whole = _HEAD + int.from_bytes(data[:_HEAD])
    return whole if _HEAD < whole <= len(data) else 0


def kafka_requests(kind: int, of: str = "") -> Match:
    """Recognizes requests of one of Kafka's kinds that name something, such as a topic."""
    return lambda request: int.from_bytes(request[4:6]) == kind and of.encode() in request


class LateProxy:
    """Forwards every connection to a server; a context manager that closes it.

    A request that is kept reaches the server in its own connection, which the server knows nothing bad of.

    Args:
        target: Returns the server's port on 127.0.0.1.
        length: Tells a request from the next one, which a busy machine reads together; by default, what is
            read at once is one request.

    Attributes:
        port: Where it listens.
        kept: Set while a request is kept.
        refuses: Whether new connections end at once, as if the client's network were gone.
    """

    def __init__(self, target: Callable[[], int], length: Length = len) -> None:
        self.kept = Event()
        self.refuses = False
        self._target = target
        self._length = length
        self._match: Match | None = None
        self._lock = Lock()
        self._request = self._said = b""
        self._ended = Event()
        self._server: socket.socket | None = None
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads: list[Thread] = []
        self._start(self._accept)

    def keep(self, match: Match = bool) -> None:
        """Keeps the next request that matches, and resets the connection of its client."""
        self.kept.clear()
        self._match = match

    def deliver(self) -> bytes:
        """Sends the request that was kept; returns what the server says."""
        if not self.kept.wait(_KEPT_SECONDS) or self._server is None:
            raise AssertionError("no request was kept")
        with contextlib.suppress(OSError):  # the server has ended the session
            self._server.sendall(self._request)
        said, silent = 0, monotonic() + _SILENT_SECONDS
        while not self._ended.wait(_ANSWER_SECONDS) and (
            said < len(self._said) or (not said and monotonic() < silent)
        ):
            said = len(self._said)
        _end(self._server)
        return self._said

    def close(self) -> None:
        """Stops listening, and ends all connections. Idempotent."""
        _end(self._listener)
        with self._lock:
            for each in self._open:
                _end(each)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.refuses:
                    client.close()
                    continue
                try:
                    server = socket.create_connection(("127.0.0.1", self._target()))
                except OSError:  # it is being restarted
                    client.close()
                    continue
                for each in client, server:
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._lock:
                    self._open |= {client, server}
                self._start(self._ask, client, server)
                self._start(self._answer, client, server)

    def _start(self, target: Callable[..., None], *arguments: socket.socket) -> None:
        self._threads.append(thread := Thread(target=target, args=arguments, daemon=True))
        thread.start()

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        data = b""
        with contextlib.suppress(OSError):
            while more := client.recv(_CHUNK):
                data += more
                while length := self._length(data):
                    request, data = data[:length], data[length:]
                    if self._is_wanted(request):
                        self._keep(client, server, request + data)
                        return
                    server.sendall(request)
            server.shutdown(socket.SHUT_WR)

    def _is_wanted(self, data: bytes) -> bool:
        with self._lock:
            if self._match is None or not self._match(data):
                return False
            self._match = None
            return True

    def _keep(self, client: socket.socket, server: socket.socket, data: bytes) -> None:
        client.settimeout(_REST_SECONDS)
        with contextlib.suppress(OSError):
            while more := client.recv(_CHUNK):
                data += more
        self._request, self._server, self._said = data, server, b""
        self._ended.clear()
        self.kept.set()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()

    def _answer(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.closing(client), contextlib.closing(server):
            with contextlib.suppress(OSError):
                while data := server.recv(_CHUNK):
                    if server is self._server:
                        self._said += data
                    else:
                        client.sendall(data)
            _end(client)
            if server is self._server:
                self._ended.set()


def _end(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
