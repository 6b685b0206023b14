"""The link between the leader and lanes in other processes: reports and orders over TCP.

The standard library's connections authenticate both ends with a secret before anything is unpickled. The
secret is made anew by every leader process and travels to the workers inside Spark's own task.
"""

from __future__ import annotations

import logging
import secrets
import socket
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import (
    Client,
    Connection,
    Listener,
    answer_challenge,
    deliver_challenge,
)
from threading import Thread
from types import TracebackType
from typing import Self

from outbox_core.leash import Link, Orders, Report

log = logging.getLogger(__name__)

ANSWER_SECONDS = 5.0
"""How long a group waits for the leader's answer before it takes the link for broken."""


class LinkServer:
    """Answers the reports of remote lane groups with what a link of this process answers.

    Args:
        host: The address that workers dial; ``127.0.0.1`` keeps the port closed to other machines.
    """

    def __init__(self, host: str) -> None:
        self._secret = secrets.token_bytes(32)
        bind = "127.0.0.1" if host == "127.0.0.1" else "0.0.0.0"  # noqa: S104 - workers on other machines dial in
        self._listener = Listener((bind, 0), backlog=64)
        self._host = host
        self._link: Link | None = None
        self._closed = False
        Thread(target=self._accept, name="link", daemon=True).start()

    @property
    def address(self) -> tuple[str, int, bytes]:
        """Host, port and secret that a :class:`RemoteLink` needs."""
        _, port = self._listener.address
        return self._host, int(port), self._secret

    def serve(self, link: Link) -> None:
        """Answers from now on with what ``link`` answers."""
        self._link = link

    def close(self) -> None:
        """Stops listening. Idempotent."""
        if self._closed:
            return
        self._closed = True
        with suppress(OSError):  # wakes the thread that waits for a peer
            socket.create_connection(("127.0.0.1", self.address[1]), timeout=1).close()
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed:
            with suppress(OSError):  # of a peer that hung up at once, or of our own closing
                connection = self._listener.accept()
                if self._closed:
                    connection.close()
                    return
                Thread(target=self._answer, args=(connection,), name="link-peer", daemon=True).start()

    def _answer(self, connection: Connection) -> None:
        with connection, suppress(OSError, EOFError):
            try:
                # Here and not in the listener, where a peer that says nothing would keep all others out.
                deliver_challenge(connection, self._secret)
                answer_challenge(connection, self._secret)
            except AuthenticationError as error:
                log.warning("a connection to the lanes' link was refused: %s", error)
                return
            while True:
                report = connection.recv()
                if self._link is None:
                    raise TypeError("a report arrived before any term began")
                connection.send(self._link.exchange(report))


class RemoteLink:
    """A group's end of the link; dials anew when the connection broke.

    Args:
        address: Host, port and secret of the leader's :class:`LinkServer`.
    """

    def __init__(self, address: tuple[str, int, bytes]) -> None:
        self._host, self._port, self._secret = address
        self._connection: Connection | None = None

    def exchange(self, report: Report) -> Orders:
        """Delivers a report and returns the orders.

        Raises:
            OSError: The leader cannot be reached, or does not answer in time.
            EOFError: The leader hung up.
        """
        try:
            if self._connection is None:
                self._connection = Client((self._host, self._port), authkey=self._secret)
            self._connection.send(report)
            if not self._connection.poll(ANSWER_SECONDS):
                raise TimeoutError(f"no answer within {ANSWER_SECONDS} s")
            orders = self._connection.recv()
        except (OSError, EOFError):
            self.close()
            raise
        assert isinstance(orders, Orders)  # noqa: S101 - the other end is ours and has shown the secret
        return orders

    def close(self) -> None:
        """Hangs up. Idempotent."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
