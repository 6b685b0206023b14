"""The base class of services: start, stop, crash, freeze, and restart with the same data."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from outbox_servers.services.process import ServerProcess, ServiceError, free_port

if TYPE_CHECKING:
    from types import TracebackType

_FIRST_START_ATTEMPTS = 3


class Service(ABC):
    """A server with a folder: started, stopped and started again on the same port with the same data.

    A context manager: entering starts it, leaving stops it and deletes a temporary folder. The end of the
    interpreter closes it too.

    Args:
        folder: The folder of data and log; by default a new temporary folder.

    Attributes:
        folder: That folder.
        log: The file with the server's output.
    """

    title: ClassVar[str]
    port_taken: ClassVar[str]
    """What its log says if another process listens on its port."""
    opened: ClassVar[list[Service]] = []
    """The servers of this process that are not closed."""
    start_timeout: ClassVar[float] = 180
    """Seconds that a start may take; on a starved machine a JVM alone takes a minute."""

    def __init__(self, folder: Path | None = None) -> None:
        self._temporary = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix=f"outbox-{self.title.lower()}-"))
        self.folder = self.folder.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = self.folder / f"{self.title.lower()}.log"
        self._process: ServerProcess | None = None
        self._port: int | None = None
        self._served = False
        self._owner = os.getpid()
        self.opened.append(self)
        atexit.register(self.close)

    @property
    def running(self) -> bool:
        """Whether the server's process is alive (perhaps paused)."""
        return self._process is not None and self._process.running

    @property
    def pid(self) -> int:
        """The process id of the running server.

        Raises:
            ServiceError: It is not running.
        """
        return self._alive().pid

    @property
    def port(self) -> int:
        """The TCP port for clients.

        Raises:
            ServiceError: It was never started.
        """
        if self._port is None:
            raise ServiceError(f"{self.title} has no port before its first start; start() it first.")
        return self._port

    def start(self) -> Self:
        """Starts the server and waits until it is ready; does nothing if it runs already.

        Raises:
            ServiceError: It ended, or was not ready in time; the message has the end of its log.
        """
        if self.running:
            return self
        attempts = 1 if self._served else _FIRST_START_ATTEMPTS
        for attempt in range(1, attempts + 1):
            if not self._served:
                self._choose_ports()
            try:
                self._launch_and_wait()
                break
            except ServiceError as error:
                # Another process may take the port between the search for it and its use.
                if attempt == attempts or self.port_taken not in str(error):
                    raise
        self._served = True
        return self

    def stop(self) -> None:
        """Stops the server in order; the data stays. Idempotent."""
        if self._process:
            self._process.stop()

    def restart(self) -> None:
        """Stops the server in order and starts it again on the same port with the same data."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """Kills the server with SIGKILL, as a crash would; the data stays. Idempotent.

        When it returns, all processes of the server have ended, and its port is closed.
        """
        if self._process:
            self._process.kill()

    def pause(self) -> None:
        """Freezes the server (SIGSTOP): connections stay open without answers.

        When it returns, no thread of the server and its child processes runs.
        """
        self._alive().pause()

    def resume(self) -> None:
        """Continues a frozen server (SIGCONT); when it returns, no thread is frozen."""
        self._alive().resume()

    def log_tail(self, lines: int = 25) -> str:
        """Returns the last lines that the server has written since its last start; empty before the first."""
        return self._process.log_tail(lines) if self._process else ""

    def close(self) -> None:
        """Stops the server and deletes its folder if that is a temporary one; idempotent."""
        if os.getpid() != self._owner:
            return  # A forked child inherits the object, but the server is its parent's.
        atexit.unregister(self.close)
        if self in self.opened:
            self.opened.remove(self)
        self._shut_down()
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            error.add_note(f"The end of {self.title}'s log:\n{self.log_tail()}")
        self.close()

    def _alive(self) -> ServerProcess:
        if self._process is None or not self._process.running:
            raise ServiceError(f"{self.title} is not running; start() it first.")
        return self._process

    @property
    def _orphan_folder(self) -> Path | None:
        return self.folder if self._temporary else None

    def _launch_and_wait(self) -> None:
        try:
            self._process = self._launch()
            self._process.wait_until_ready(self._ready, self.start_timeout)
        except BaseException:
            self.kill()
            raise

    def _choose_ports(self) -> None:
        self._port = free_port()

    @abstractmethod
    def _launch(self) -> ServerProcess: ...

    @abstractmethod
    def _ready(self) -> bool: ...

    def _shut_down(self) -> None:
        """Stops the server in the fastest way that loses nothing that is needed again."""
        if self._temporary:
            self.kill()
        else:
            self.stop()


class WebService(Service):
    """A server that speaks HTTP."""

    @property
    def url(self) -> str:
        """Its address on 127.0.0.1, without a slash at its end.

        Raises:
            ServiceError: It was never started.
        """
        return f"http://127.0.0.1:{self.port}"
