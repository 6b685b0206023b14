"""The control channel between the leader and lanes in other processes: reports and orders over TCP.

Every message shows that its sender knows a secret (:mod:`outbox_core.control.wire`). Every leader process
makes it anew, and it travels to the workers inside Spark's own task. Nothing waits for ever: a peer that says
nothing, or reads nothing, is disconnected.
"""

from __future__ import annotations

import logging
import secrets
import socket
from contextlib import closing
from threading import Event as Flag
from threading import Lock
from types import TracebackType
from typing import Self

from outbox_api.support.context_thread import ContextThread

from outbox_core.control.protocol import ControlChannel, Orders, Report, decode, encode
from outbox_core.control.wire import NotAuthentic, Wire

log = logging.getLogger("outbox.control")

CONNECT_SECONDS = 3.0
"""Seconds for a group to connect."""
ANSWER_SECONDS = 5.0
"""Seconds for the leader to answer a report, and for each end to prove that it knows the secret."""
IDLE_SECONDS = 30.0
"""Seconds without a report after which the leader closes a connection."""
MAX_UNAUTHENTICATED = 32
"""The most connections that have not proved the secret yet; for one more, the oldest is closed."""
ACCEPT_SECONDS = 0.5
"""Seconds after which a closed server stops listening, at most."""

Address = tuple[str, int, bytes]
"""Host, port and secret of a server."""


class ControlServer:
    """Answers the reports of remote lane groups through a control channel of this process.

    Args:
        host: The address that workers connect to; ``127.0.0.1`` keeps the port closed to other machines.
        port: Its port; 0 takes a free one.
        bind: The address to listen at, where that is not ``host`` itself.

    Raises:
        OSError: The port is taken, or the address is none of this machine's.
    """

    def __init__(self, host: str, port: int = 0, bind: str = "") -> None:
        self._secret = secrets.token_bytes(32)
        self._listener = socket.create_server((bind or host, port), backlog=64)
        self._listener.settimeout(ACCEPT_SECONDS)
        self._host, self._port = host, int(self._listener.getsockname()[1])
        self._channels: dict[str, ControlChannel] = {}
        self._lock = Lock()
        self._unauthenticated: list[Wire] = []  # the oldest first
        self._peers: set[Wire] = set()
        self._closed = Flag()
        self._listening = ContextThread(target=self._accept, name="control", daemon=True)
        self._listening.start()

    @property
    def address(self) -> Address:
        """The address for :class:`ControlClient`."""
        return self._host, self._port, self._secret

    def serve(self, channel: ControlChannel, outbox: str = "") -> None:
        """Passes reports about ``outbox`` to ``channel`` from now on, and returns its answers."""
        self._channels[outbox] = channel

    def forget(self, outbox: str) -> None:
        """Answers reports about ``outbox`` no longer, until the next :meth:`serve`."""
        self._channels.pop(outbox, None)

    def close(self) -> None:
        """Stops listening, and closes all connections. Idempotent."""
        with self._lock:
            self._closed.set()
            wires = [*self._unauthenticated, *self._peers]
        for wire in wires:
            wire.hang_up()
        self._listening.join()  # the port is free for another server then

    def _accept(self) -> None:
        with closing(self._listener):
            while not self._closed.is_set():
                try:
                    peer, _ = self._listener.accept()
                except TimeoutError:
                    continue
                except OSError as error:  # no file descriptor is left, or the connection was closed at once
                    log.warning("a connection to the control channel was not accepted: %s", error)
                    self._closed.wait(ACCEPT_SECONDS)
                    continue
                wire = Wire(peer, b"leader", self._secret)
                try:
                    self._serve_peer(wire)
                except RuntimeError as error:  # there can be no thread at present; the group connects again
                    log.warning("a connection to the control channel is closed: %s", error)
                    self._forget(wire)

    def _serve_peer(self, wire: Wire) -> None:
        """Serves a new connection on a thread of its own; closes the oldest unproved one if too many."""
        oldest = None
        with self._lock:
            self._unauthenticated.append(wire)
            if len(self._unauthenticated) > MAX_UNAUTHENTICATED:
                oldest = self._unauthenticated.pop(0)
        if oldest is not None:
            oldest.hang_up()
        ContextThread(target=self._answer, args=(wire,), name="control-peer", daemon=True).start()

    def _answer(self, wire: Wire) -> None:
        try:
            wire.allow(ANSWER_SECONDS)
            wire.shake_hands()
            self._admit(wire)
            while not self._closed.is_set():
                wire.allow(IDLE_SECONDS)
                report = decode(Report, wire.receive())
                channel = self._channels.get(report.outbox)
                if channel is None:
                    raise ConnectionError("a report arrived before any leadership began")
                wire.send(encode(channel.exchange(report)))
        except NotAuthentic as error:
            log.warning("a connection to the control channel was refused: %s", error)
        except (OSError, EOFError) as error:
            log.debug("a connection to the control channel ended: %s", error)
        finally:
            self._forget(wire)

    def _forget(self, wire: Wire) -> None:
        wire.close()
        with self._lock:
            self._peers.discard(wire)
            if wire in self._unauthenticated:
                self._unauthenticated.remove(wire)

    def _admit(self, wire: Wire) -> None:
        with self._lock:
            if wire in self._unauthenticated:  # or it was closed meanwhile
                self._unauthenticated.remove(wire)
            self._peers.add(wire)


class ControlClient:
    """A group's end of the control channel; connects again after the connection has failed."""

    def __init__(self, address: Address) -> None:
        self._host, self._port, self._secret = address
        self._wire: Wire | None = None

    def connect(self) -> None:
        """Connects, unless it is connected; takes ``CONNECT_SECONDS`` and ``ANSWER_SECONDS`` at most."""
        if self._wire is not None:
            return
        try:
            peer = socket.create_connection((self._host, self._port), CONNECT_SECONDS)
            wire = Wire(peer, b"group", self._secret)
            try:
                wire.allow(ANSWER_SECONDS)
                wire.shake_hands()
            except BaseException:
                wire.close()
                raise
        except (OSError, EOFError) as error:
            raise ConnectionError(f"cannot reach the leader at {self._host}:{self._port}: {error}") from error
        self._wire = wire

    def exchange(self, report: Report) -> Orders:
        """Delivers a report and returns the orders; takes as long as a connect and an answer at most."""
        self.connect()
        assert self._wire is not None  # noqa: S101 - connected
        try:
            self._wire.allow(ANSWER_SECONDS)
            self._wire.send(encode(report))
            return decode(Orders, self._wire.receive())
        except (OSError, EOFError):
            self.close()
            raise

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
