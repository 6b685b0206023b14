"""A TCP proxy on 127.0.0.1 that delays data, stops forwarding, and cuts connections at chosen moments."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable
from enum import Enum
from threading import Event, Lock, Thread
from typing import NamedTuple

CHUNK = 65536
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with a time of 0: closing resets the connection."""
READY = b"Z\x00\x00\x00\x05"
"""PostgreSQL's ReadyForQuery without its last byte: the statement before it is complete and committed."""
COMMIT = b"\x03COMMIT"
"""MySQL's commit request, behind its header of four bytes."""


END_TRANSACTION = 26
"""Kafka's API key of EndTxn, which commits or aborts a transaction."""
_FLEXIBLE = 3
"""The version from which on that request ends with a byte of tagged fields."""


class Speech(NamedTuple):
    """How a proxy recognizes a commit in a database's protocol.

    Attributes:
        asks: Whether data of the client may request a commit.
        done: Whether data of the server ends the reply to it.
    """

    asks: Callable[[bytes], bool]
    done: Callable[[bytes], bool]


POSTGRES = Speech(asks=bool, done=lambda data: data[-6:-1] == READY)
MYSQL = Speech(asks=lambda data: data[4:] == COMMIT, done=bool)


Observer = Callable[[bytes, bool], None]
"""Receives the data of one connection as it is forwarded, and whether it comes from the client."""


class Trap(Enum):
    """When a connection is cut: the first two to the database, the others to Kafka."""

    HALF = "the server has received half of the client's next message"
    REPLY = "the server has executed the client's next request, and the reply is withheld"
    COMMIT = "the broker has received half of the next commit request"
    COMMITTED = "the broker has committed the next transaction, and the reply is withheld"
    MUTE = "as before, but the connection stays open, without further data"


class Proxy:
    """Forwards every connection to a server; a context manager that closes it.

    Args:
        target: Returns the server's port; called for each connection.
        speech: The protocol of the server, if it is a database.
        observe: Called for each connection; returns what receives its data.

    Attributes:
        port: The port on which it listens.
        delay: Seconds by which all data is delayed, in either direction.
        sprung: How many traps have cut their connection.
        idle: For how many seconds a connection may be idle, and whether it is then reset; ``None`` for ever.
        idle_ended: How many connections were ended for that.
    """

    def __init__(
        self,
        target: Callable[[], int],
        speech: Speech = POSTGRES,
        *,
        observe: Callable[[], Observer] | None = None,
    ) -> None:
        self._target = target
        self.speech = speech
        self.observe = observe
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._socket.getsockname()[1]
        self.delay = 0.0
        self.sprung = 0
        self.idle_ended = 0
        self.idle: tuple[float, bool] | None = None
        self._open = Event()
        self._open.set()
        self._connections: set[_Connection] = set()
        self._lock = Lock()
        Thread(target=self._accept, name=f"proxy-{self.port}", daemon=True).start()

    def cut(self) -> int:
        """Resets every connection; returns how many there were."""
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.cut()
        return len(connections)

    def set_trap(self, trap: Trap) -> None:
        """Sets a trap for every connection that is open now; each is cut once."""
        with self._lock:
            for connection in self._connections:
                connection.trap = trap

    def forget_connections(self) -> int:
        """Forwards nothing more for any open connection, not even its end; returns how many there were."""
        with self._lock:
            for connection in self._connections:
                connection.forgotten = True
            return len(self._connections)

    def end_idle(self, seconds: float | None, *, reset: bool = False) -> None:
        """Ends each present connection once it has had no data for so long, by RST or FIN.

        Goes on until called with ``None``.
        """
        self.idle = None if seconds is None else (seconds, reset)
        if self.idle:
            with self._lock:
                present = set(self._connections)
            Thread(target=self._end_idle, args=(self.idle, present), name="proxy-idle", daemon=True).start()

    def _end_idle(self, idle: tuple[float, bool], present: set[_Connection]) -> None:
        seconds, reset = idle
        while self.idle is idle and present:
            for connection in [each for each in present if time.monotonic() > each.used + seconds]:
                present.discard(connection)
                self.idle_ended += 1
                (connection.cut if reset else connection.finish)()
            time.sleep(seconds / 10)

    def silence(self) -> None:
        """Forwards nothing until :meth:`speak`; connections stay open, and new ones are accepted."""
        self._open.clear()

    def speak(self) -> None:
        """Forwards again, first what was withheld."""
        self._open.set()

    def close(self) -> None:
        """Stops listening and cuts all connections. Idempotent."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._open.set()
        self.cut()

    def hold_back(self) -> None:
        """Blocks the calling thread while the proxy withholds data."""
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
                _reset(client)  # like the server itself
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
    """One connection: two sockets, and a thread for each direction."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self.trap: Trap | None = None
        self.forgotten = False
        self.used = time.monotonic()
        self._asked: bytes | None = None  # the client's request since the trap was set, if it may be a commit
        self._mute = False
        self._proxy = proxy
        self._observe = proxy.observe() if proxy.observe else None
        self._client = client
        self._server = server
        self._left = 2
        self._lock = Lock()

    def start(self) -> None:
        for source, sink in (self._client, self._server), (self._server, self._client):
            Thread(target=self._pump, args=(source, sink), name="proxy-pump", daemon=True).start()

    def cut(self) -> None:
        """Resets both sockets."""
        for end in self._client, self._server:
            _reset(end)

    def finish(self) -> None:
        """Tells both ends that nothing more will come."""
        for end in self._client, self._server:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(CHUNK):
                self.used = time.monotonic()
                if self._observe:
                    self._observe(data, source is self._client)
                self._proxy.hold_back()
                data, springs = self._trapped(data, from_client=source is self._client)
                if data and not self._mute and not self.forgotten:
                    sink.sendall(data)
                if springs:
                    self._spring()
            if not self.forgotten:
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
        """Returns the part of the data to forward, and whether to cut the connection then."""
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
        self._proxy.sprung += 1  # before either side can notice
        if not muted:
            self.cut()


def commits(data: bytes) -> bool:
    """Returns whether the data is exactly one of Kafka's requests to commit a transaction."""
    if len(data) < 12 or int.from_bytes(data[:4]) != len(data) - 4:
        return False
    kind, version = int.from_bytes(data[4:6]), int.from_bytes(data[6:8])
    return kind == END_TRANSACTION and data[-2 if version >= _FLEXIBLE else -1] == 1


def _answers(data: bytes, request: bytes) -> bool:
    """Returns whether the data begins with Kafka's response to a request."""
    return data[4:8] == request[8:12]


def _reset(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        end.shutdown(socket.SHUT_RDWR)
