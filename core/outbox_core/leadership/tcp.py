"""The control channel between the leader and lanes in other processes: reports and orders over TCP.

Both ends show the other that they know a secret before anything is unpickled. Every leader process makes it
anew, and it travels to the workers inside Spark's own task. Nothing waits for ever: a peer that says nothing,
or reads nothing, is disconnected.
"""

from __future__ import annotations

import logging
import pickle
import secrets
import socket
from contextlib import closing, suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import answer_challenge, deliver_challenge
from threading import Lock
from time import monotonic
from types import TracebackType
from typing import Any, Self

from outbox_core.leadership.protocol import ControlChannel, Orders, Report
from outbox_core.log_context import ContextThread

log = logging.getLogger(__name__)

CONNECT_SECONDS = 3.0
"""Seconds for a group to connect."""
ANSWER_SECONDS = 5.0
"""Seconds for the leader to answer a report, and for each end to prove that it knows the secret."""
IDLE_SECONDS = 30.0
"""Seconds without a report after which the leader closes a connection."""
MAX_UNAUTHENTICATED = 32
"""The most connections that have not proved the secret yet; for one more, the oldest is closed."""
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""The most bytes of one message."""
ACCEPT_SECONDS = 0.5
"""Seconds after which a closed server stops listening, at most."""

Address = tuple[str, int, bytes]
"""Host, port and secret of a server."""


class _Wire:
    """Messages over a socket, with the interface that the standard library's challenges need.

    Each is led by its length. :meth:`allow` says how long all that follows may take.
    """

    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer
        self._until = monotonic()

    def allow(self, seconds: float) -> None:
        self._until = monotonic() + seconds

    def send(self, message: Report | Orders) -> None:
        self.send_bytes(pickle.dumps(message))

    def receive(self) -> Any:
        return pickle.loads(self.recv_bytes(MAX_MESSAGE_BYTES))  # noqa: S301 - from a peer that has shown the secret

    def send_bytes(self, message: bytes) -> None:
        self._peer.settimeout(self._left())
        self._peer.sendall(len(message).to_bytes(4) + message)

    def recv_bytes(self, most: int) -> bytes:
        length = int.from_bytes(self._read(4))
        if length > most:
            raise ConnectionError(f"a message of {length} bytes, where {most} are allowed")
        return self._read(length)

    def close(self) -> None:
        """Closes the connection; ends waits for the peer in other threads, too."""
        with suppress(OSError):  # the peer has closed it already
            self._peer.shutdown(socket.SHUT_RDWR)
        self._peer.close()

    def _read(self, length: int) -> bytes:
        read = bytearray()
        while len(read) < length:
            self._peer.settimeout(self._left())
            more = self._peer.recv(length - len(read))
            if not more:
                raise EOFError("the other end has closed the connection")
            read += more
        return bytes(read)

    def _left(self) -> float:
        left = self._until - monotonic()
        if left <= 0:
            raise TimeoutError("no answer in time")
        return left


class ControlServer:
    """Answers the reports of remote lane groups through a control channel of this process.

    Args:
        host: The address that workers connect to; ``127.0.0.1`` keeps the port closed to other machines.
        port: Its port; 0 takes a free one.
        bind: The address to listen at, where that is not the machine's own name for ``host``; all, if empty.

    Raises:
        OSError: The port is taken, or the address is none of this machine's.
    """

    def __init__(self, host: str, port: int = 0, bind: str = "") -> None:
        self._secret = secrets.token_bytes(32)
        bind = bind or ("127.0.0.1" if host == "127.0.0.1" else "")
        self._listener = socket.create_server((bind, port), backlog=64)
        self._listener.settimeout(ACCEPT_SECONDS)
        self._host, self._port = host, int(self._listener.getsockname()[1])
        self._channels: dict[str, ControlChannel] = {}
        self._lock = Lock()
        self._unauthenticated: list[_Wire] = []  # the oldest first
        self._peers: set[_Wire] = set()
        self._closed = False
        self._listening = ContextThread(target=self._accept, name="link", daemon=True)
        self._listening.start()

    @property
    def address(self) -> Address:
        """The address for :class:`ControlClient`."""
        return self._host, self._port, self._secret

    def serve(self, channel: ControlChannel, outbox: str = "") -> None:
        """Passes reports about ``outbox`` to ``channel`` from now on, and returns its answers."""
        self._channels[outbox] = channel

    def close(self) -> None:
        """Stops listening, and closes all connections. Idempotent."""
        with self._lock:
            self._closed = True
            wires = [*self._unauthenticated, *self._peers]
        for wire in wires:
            wire.close()
        self._listening.join()  # the port is free for another server then

    def _accept(self) -> None:
        with closing(self._listener):
            while not self._closed:
                with suppress(OSError):  # there is no connection, or it was closed at once
                    peer, _ = self._listener.accept()
                    self._serve_peer(_Wire(peer))

    def _serve_peer(self, wire: _Wire) -> None:
        """Serves a new connection on a thread of its own; closes the oldest unproved one if too many."""
        oldest = None
        with self._lock:
            self._unauthenticated.append(wire)
            if len(self._unauthenticated) > MAX_UNAUTHENTICATED:
                oldest = self._unauthenticated.pop(0)
        if oldest is not None:
            oldest.close()
        ContextThread(target=self._answer, args=(wire,), name="link-peer", daemon=True).start()

    def _answer(self, wire: _Wire) -> None:
        try:
            wire.allow(ANSWER_SECONDS)
            deliver_challenge(wire, self._secret)  # type: ignore[arg-type]  # it sends and receives bytes
            answer_challenge(wire, self._secret)  # type: ignore[arg-type]  # likewise
            self._admit(wire)
            while not self._closed:
                wire.allow(IDLE_SECONDS)
                report = wire.receive()
                channel = self._channels.get(report.outbox)
                if channel is None:
                    raise ConnectionError("a report arrived before any leadership began")
                wire.send(channel.exchange(report))
        except AuthenticationError as error:
            log.warning("a connection to the lanes' link was refused: %s", error)
        except (OSError, EOFError) as error:
            log.debug("a connection to the lanes' link ended: %s", error)
        finally:
            wire.close()
            with self._lock:
                self._peers.discard(wire)
                if wire in self._unauthenticated:
                    self._unauthenticated.remove(wire)

    def _admit(self, wire: _Wire) -> None:
        with self._lock:
            if wire in self._unauthenticated:  # or it was closed meanwhile
                self._unauthenticated.remove(wire)
            self._peers.add(wire)


class ControlClient:
    """A group's end of the control channel; connects again after the connection has failed.

    Args:
        address: Host, port and secret of the leader's :class:`ControlServer`.
    """

    def __init__(self, address: Address) -> None:
        self._host, self._port, self._secret = address
        self._wire: _Wire | None = None

    def connect(self) -> None:
        """Connects, unless it is connected already; takes ``CONNECT_SECONDS`` and ``ANSWER_SECONDS`` at most.

        Raises:
            ConnectionError: The leader cannot be reached, does not answer in time, or closes the connection.
            AuthenticationError: The server does not know the secret.
        """
        if self._wire is not None:
            return
        try:
            wire = _Wire(socket.create_connection((self._host, self._port), CONNECT_SECONDS))
            try:
                wire.allow(ANSWER_SECONDS)
                answer_challenge(wire, self._secret)  # type: ignore[arg-type]  # it sends and receives bytes
                deliver_challenge(wire, self._secret)  # type: ignore[arg-type]  # likewise
            except BaseException:
                wire.close()
                raise
        except (OSError, EOFError) as error:
            raise ConnectionError(f"cannot reach the leader at {self._host}:{self._port}: {error}") from error
        self._wire = wire

    def exchange(self, report: Report) -> Orders:
        """Delivers a report and returns the orders; takes as long as :meth:`connect` and an answer at most.

        Raises:
            OSError: The leader cannot be reached, or does not answer in time.
            EOFError: The leader has closed the connection.
            AuthenticationError: The server does not know the secret.
        """
        self.connect()
        assert self._wire is not None  # noqa: S101 - connected
        try:
            self._wire.allow(ANSWER_SECONDS)
            self._wire.send(report)
            orders = self._wire.receive()
        except (OSError, EOFError):
            self.close()
            raise
        assert isinstance(orders, Orders)  # noqa: S101 - the other end is ours and has shown the secret
        return orders

    def close(self) -> None:
        """Closes the connection. Idempotent."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
