"""A TCP proxy on 127.0.0.1 that delays, falls silent, and cuts connections at the worst moment."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable
from enum import Enum
from threading import Event, Lock, Thread
from typing import NamedTuple

from outbox_servers.services import free_port

CHUNK = 65536
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with no time to linger: closing resets the connection."""
READY = b"Z\x00\x00\x00\x05"
"""PostgreSQL's ReadyForQuery, but for its last byte: the statement before it is done, and committed."""
COMMIT = b"\x03COMMIT"
"""MySQL's request to commit, behind its head of four bytes."""


END_TRANSACTION = 26
"""Kafka's number for the request that commits a transaction, or aborts it."""
_FLEXIBLE = 3
"""The version from which such a request ends in a byte for additions."""


class Speech(NamedTuple):
    """What tells in a database's protocol that something has just been committed.

    Attributes:
        asks: Whether data of the client's asks for what may be a commit.
        done: Whether data of the server's ends the reply to it.
    """

    asks: Callable[[bytes], bool]
    done: Callable[[bytes], bool]


POSTGRES = Speech(asks=bool, done=lambda data: data[-6:-1] == READY)
MYSQL = Speech(asks=lambda data: data[4:] == COMMIT, done=bool)


class Trap(Enum):
    """When a connection is cut: the first two to the database, the others to Kafka."""

    HALF = "the server has half of the client's next message"
    REPLY = "the server has done what the client asked next, and the reply is withheld"
    COMMIT = "the broker has half of the next request to commit a transaction"
    COMMITTED = "the broker has committed the next transaction, and the reply is withheld"
    MUTE = "as before, but the connection stays open, and says nothing more"


class Proxy:
    """Forwards every connection to a server; a context manager that closes it.

    Args:
        target: Returns the server's port; asked for each connection.
        speech: What the server speaks, if it is a database.

    Attributes:
        port: Where it listens.
        delay: Seconds that everything is kept, in either direction.
        sprung: How many traps have cut their connection.
    """

    def __init__(self, target: Callable[[], int], speech: Speech = POSTGRES) -> None:
        self._target = target
        self.speech = speech
        self.port = free_port()
        self.delay = 0.0
        self.sprung = 0
        self._open = Event()
        self._open.set()
        self._connections: set[_Connection] = set()
        self._lock = Lock()
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", self.port))
        self._socket.listen(64)
        Thread(target=self._accept, name=f"proxy-{self.port}", daemon=True).start()

    def cut(self) -> int:
        """Resets every connection; returns how many there were."""
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.cut()
        return len(connections)

    def set_trap(self, trap: Trap) -> None:
        """Has every connection that is open now fall into a trap, once."""
        with self._lock:
            for connection in self._connections:
                connection.trap = trap

    def silence(self) -> None:
        """Keeps everything back until :meth:`speak`; connections stay open, and new ones are accepted."""
        self._open.clear()

    def speak(self) -> None:
        """Forwards again, beginning with what was kept back."""
        self._open.set()

    def close(self) -> None:
        """Stops listening and cuts all connections. Idempotent."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._open.set()
        self.cut()

    def hold_back(self) -> None:
        """Makes the calling thread wait as long as this proxy keeps things."""
        self._open.wait()
        if self.delay:
            time.sleep(self.delay)

    def forget(self, connection: _Connection) -> None:
        with self._lock:
            self._connections.discard(connection)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target()), timeout=5)
            except OSError:
                _reset(client)  # as the server itself would refuse it
                client.close()
                continue
            server.settimeout(None)
            for end in client, server:
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = _Connection(self, client, server)
            with self._lock:
                self._connections.add(connection)
            connection.start()


class _Connection:
    """One connection: two ends, and a thread for each direction."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self.trap: Trap | None = None
        self._asked: bytes | None = None  # what the client has asked since the trap was set, if it counts
        self._mute = False
        self._proxy = proxy
        self._client = client
        self._server = server
        self._left = 2
        self._lock = Lock()

    def start(self) -> None:
        for source, sink in (self._client, self._server), (self._server, self._client):
            Thread(target=self._pump, args=(source, sink), name="proxy-pump", daemon=True).start()

    def cut(self) -> None:
        """Resets both ends."""
        for end in self._client, self._server:
            _reset(end)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(CHUNK):
                self._proxy.hold_back()
                data, springs = self._trapped(data, from_client=source is self._client)
                if data and not self._mute:
                    sink.sendall(data)
                if springs:
                    self._spring()
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            self.cut()
        with self._lock:
            self._left -= 1
            over = not self._left
        if over:
            self._client.close()
            self._server.close()
            self._proxy.forget(self)

    def _trapped(self, data: bytes, *, from_client: bool) -> tuple[bytes, bool]:
        """Returns what of the data is to be forwarded, and whether the connection is cut then."""
        match self.trap:
            case Trap.HALF if from_client:
                return data[: len(data) // 2], True
            case Trap.REPLY if from_client:
                self._asked = data if self._proxy.speech.asks(data) else None
            case Trap.REPLY if self._asked:
                return b"", self._proxy.speech.done(data)
            case Trap.COMMIT if from_client and commits(data):
                return data[: len(data) // 2], True
            case Trap.COMMITTED | Trap.MUTE if from_client and commits(data):
                self._asked = data
            case Trap.COMMITTED | Trap.MUTE if (
                not from_client and self._asked and _answers(data, self._asked)
            ):
                return b"", True
        return data, False

    def _spring(self) -> None:
        muted = self.trap is Trap.MUTE
        if muted:
            self._mute, self.trap = True, None
        self._proxy.sprung += 1  # before anybody can notice
        if not muted:
            self.cut()


def commits(data: bytes) -> bool:
    """Tells whether this is Kafka's request to commit a transaction, alone and whole as a client sends it."""
    if len(data) < 12 or int.from_bytes(data[:4]) != len(data) - 4:
        return False
    kind, version = int.from_bytes(data[4:6]), int.from_bytes(data[6:8])
    return kind == END_TRANSACTION and data[-2 if version >= _FLEXIBLE else -1] == 1


def _answers(data: bytes, request: bytes) -> bool:
    """Tells whether this begins with Kafka's answer to a request."""
    return data[4:8] == request[8:12]


def _reset(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        end.shutdown(socket.SHUT_RDWR)
