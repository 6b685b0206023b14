"""One set of servers for a run of tests, in however many processes; a test that needs one first starts it."""

from __future__ import annotations

import secrets
import tempfile
import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outbox_servers.finding import (
    open_etcd,
    open_kafka,
    open_mariadb,
    open_mysql,
    open_postgres,
    open_zookeeper,
)
from outbox_servers.services.cache import Progress, logged
from outbox_servers.services.chromium import ChromiumBrowser
from outbox_servers.services.process import ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

_OPEN: Mapping[str, tuple[Callable[[Progress], AbstractContextManager[Any]], str]] = {
    "postgres": (lambda progress: open_postgres(progress=progress), "dsn"),
    "mysql": (lambda progress: open_mysql(progress=progress), "dsn"),
    "mariadb": (lambda progress: open_mariadb(progress=progress), "dsn"),
    "kafka": (lambda progress: open_kafka(progress=progress), "bootstrap"),
    "etcd": (lambda progress: open_etcd(progress=progress), "endpoint"),
    "zookeeper": (lambda progress: open_zookeeper(progress=progress), "hosts"),
    "chromium": (lambda progress: ChromiumBrowser(progress=progress), "url"),
}
"""Name → how it is opened, and the attribute that holds its address."""


@dataclass(frozen=True)
class Shared:
    """A running server.

    Attributes:
        address: Where clients reach it.
        log: The file with its output; ``None`` if the run has not started it.
    """

    address: str
    log: Path | None


class SharedServers:
    """The servers of a run, in the process that started the run; stopped by ``close``.

    Args:
        progress: Receives a line of text for each start and each download.
    """

    def __init__(self, progress: Progress = logged) -> None:
        self._progress = progress
        self._opened = ExitStack()
        self._found: dict[str, Shared | ServiceError] = {}
        self._starting = {name: threading.Lock() for name in _OPEN}
        self._listener: Listener | None = None
        self._key = secrets.token_bytes(32)

    def find(self, name: str) -> Shared:
        """Returns the server of that name, and starts it at the first call.

        Raises:
            ServiceError: It is not available. Later calls raise the same at once.
        """
        with self._starting[name]:
            if name not in self._found:
                self._found[name] = self._open(name)
            found = self._found[name]
        if isinstance(found, ServiceError):
            raise found
        return found

    def serve(self) -> tuple[str, bytes]:
        """Returns an address and a secret, with which a :class:`RemoteServers` finds these servers."""
        if self._listener is None:
            folder = self._opened.enter_context(tempfile.TemporaryDirectory(prefix="outbox-run-"))
            self._listener = Listener(f"{folder}/servers", authkey=self._key)
            threading.Thread(target=self._accept, args=[self._listener], daemon=True).start()
        return str(self._listener.address), self._key

    def tell(self, line: str) -> None:
        """Shows a line of progress."""
        self._progress(line)

    def close(self) -> None:
        """Stops the servers that were started. Idempotent."""
        if self._listener:
            self._listener.close()
        self._opened.close()

    def _open(self, name: str) -> Shared | ServiceError:
        opening, attribute = _OPEN[name]
        try:
            server = self._opened.enter_context(opening(self._progress))
        except ServiceError as error:
            return error
        return Shared(getattr(server, attribute), getattr(server, "log", None))

    def _accept(self, listener: Listener) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                connection = listener.accept()
                threading.Thread(target=self._answer, args=[connection], daemon=True).start()

    def _answer(self, connection: Connection[Any, Any]) -> None:
        """Answers requests: the name of a server, or a line of progress."""
        with suppress(EOFError, OSError), connection:
            while True:
                kind, text = connection.recv()
                if kind == "progress":
                    self.tell(text)
                    continue
                try:
                    connection.send(self.find(text))
                except ServiceError as error:
                    connection.send(error)


class RemoteServers:
    """The servers of a run, as another process of the run finds them.

    Args:
        address: What :meth:`SharedServers.serve` returned.
        key: Likewise.
    """

    def __init__(self, address: str, key: bytes) -> None:
        self._connection = Client(address, authkey=key)
        self._turn = threading.Lock()

    def find(self, name: str) -> Shared:
        """Returns the server of that name; the process that started the run starts it at the first call.

        Raises:
            ServiceError: It is not available.
        """
        with self._turn:
            self._connection.send(("find", name))
            found: Shared | ServiceError = self._connection.recv()
        if isinstance(found, ServiceError):
            raise found
        return found

    def tell(self, line: str) -> None:
        """Shows a line of progress where the run was started."""
        with self._turn, suppress(OSError):  # the run has ended
            self._connection.send(("progress", line))
