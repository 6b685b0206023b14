"""A server as a child process: its log, its readiness, and its death together with this interpreter."""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from outbox_sdk.errors import OutboxError

POLL_INTERVAL = 0.02
"""Seconds between two looks at whether a server is ready."""

# Below the ephemeral range of Linux (from 32768) and macOS (from 49152): while a server is down, a client that
# keeps connecting to an ephemeral port can be given that very port as its own and then keep the server from it.
PORTS = range(20000, 32768)

_FIRST_START_ATTEMPTS = 3

# The guard waits on a pipe that this interpreter holds. A line means that the server was stopped in order; end of
# file means that the interpreter is gone, however it went. Works for SIGKILL, and on Linux and macOS alike; the
# kernel's own parent-death signal would fire as soon as the *thread* that started the server ends.
_GUARD = """
trap '' INT TERM HUP
read -r _ && exit
kill -s "$2" -- "-$1"; kill -s CONT -- "-$1"
tries=50
while [ $tries -gt 0 ] && kill -0 -- "-$1"; do sleep 0.1; tries=$((tries - 1)); done
[ -z "$3" ] || rm -rf -- "$3"
"""


class ServiceError(OutboxError):
    """A service could not be found, started, or did not answer; the message carries the end of its log."""


def free_port() -> int:
    """Returns a TCP port of 127.0.0.1 that nobody listens on at this moment.

    Raises:
        ServiceError: A thousand random ports were all taken.
    """
    for _ in range(1000):
        port = random.choice(PORTS)  # noqa: S311 - spreads ports over processes, keeps no secret
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port
    raise ServiceError(
        f"No free TCP port found between {PORTS.start} and {PORTS.stop - 1}; stop some servers."
    )


def descendants(pid: int) -> list[int]:
    """Returns the process ids of all children of ``pid`` and their children, parents before children."""
    table = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], check=True, capture_output=True, text=True)  # noqa: S607 - POSIX puts ps on every PATH
    children: dict[int, list[int]] = {}
    for line in table.stdout.splitlines():
        child, parent = line.split()
        children.setdefault(int(parent), []).append(int(child))
    found = list(children.get(pid, []))
    for each in found:
        found.extend(children.get(each, []))
    return found


class ServerProcess:
    """A running server in a session of its own, which does not outlive this interpreter.

    Args:
        name: What to call it in error messages.
        command: Program and arguments.
        log: The file that its output is appended to.
        environment: Its whole environment; this process's if not given.
        account: User and group id to run as, if not this process's.
        orphan_signal: What it is sent if this interpreter dies, for example ``KILL``.
        orphan_folder: A folder to delete in that case.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        account: tuple[int, int] | None = None,
        orphan_signal: str = "KILL",
        orphan_folder: Path | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self._log_start = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=None if environment is None else dict(environment),
                cwd=log.parent,
                start_new_session=True,
                user=account[0] if account else None,
                group=account[1] if account else None,
                extra_groups=[] if account else None,
            )
        self.pid = self._process.pid
        guard = [
            "/bin/sh",
            "-c",
            _GUARD,
            "outbox-guard",
            str(self.pid),
            orphan_signal,
            str(orphan_folder or ""),
        ]
        self._guard = subprocess.Popen(
            guard,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def running(self) -> bool:
        """Whether the server's first process is alive."""
        return self._process.poll() is None

    def wait_until_ready(self, ready: Callable[[], bool], timeout: float) -> None:
        """Returns once ``ready`` answers true; asks it again and again until then.

        Raises:
            ServiceError: The server died, or was not ready after ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while not ready():
            if not self.running:
                raise ServiceError(
                    f"{self.name} ended with exit code {self._process.returncode} before it was ready. "
                    f"The end of its log, {self.log}:\n{self.log_tail()}"
                )
            if time.monotonic() > deadline:
                raise ServiceError(
                    f"{self.name} was not ready after {timeout:g} seconds. "
                    f"The end of its log, {self.log}:\n{self.log_tail()}"
                )
            time.sleep(POLL_INTERVAL)

    def stop(self, stop_signal: signal.Signals = signal.SIGTERM, timeout: float = 30) -> None:
        """Sends the first process a signal and waits until it has ended; kills it after ``timeout`` seconds."""
        if self.running:
            self._process.send_signal(stop_signal)
            self._process.send_signal(signal.SIGCONT)
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
        self._release()

    def kill(self) -> None:
        """Kills the server and everything that it started, and waits until it has ended; idempotent."""
        self.signal_all(signal.SIGKILL)
        self._process.wait()
        self._release()

    def signal_all(self, number: signal.Signals) -> None:
        """Sends a signal to the server and all its descendants, parents first."""
        if not self.running:
            return
        family = [self.pid, *descendants(self.pid)]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def log_tail(self, lines: int = 25) -> str:
        """Returns the last lines that this process (not an earlier one) wrote to the log."""
        with self.log.open("rb") as file:
            file.seek(self._log_start)
            return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])

    def _release(self) -> None:
        if self._guard.stdin and not self._guard.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self._guard.stdin.write(b"stopped\n")
                self._guard.stdin.flush()
            self._guard.stdin.close()
            self._guard.wait()


class Service(ABC):
    """A server with a folder: started, stopped and started again on the same port with the same data.

    A context manager: entering starts it, leaving stops it and deletes the folder if it was a temporary one. It
    is also closed when the interpreter ends.

    Args:
        folder: Where data and log live; a new temporary folder if not given.

    Attributes:
        folder: That folder.
        log: The file with the server's output.
    """

    title: ClassVar[str]
    port_taken: ClassVar[str]
    """What its log says if somebody else listens on its port."""
    start_timeout: ClassVar[float] = 60
    """Seconds that a start may take."""

    def __init__(self, folder: Path | None = None) -> None:
        self._temporary = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix=f"outbox-{self.title.lower()}-"))
        self.folder = self.folder.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = self.folder / f"{self.title.lower()}.log"
        self._process: ServerProcess | None = None
        self._served = False
        self._owner = os.getpid()
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

    def start(self) -> Self:
        """Starts the server and returns when it serves; does nothing if it runs already.

        Raises:
            ServiceError: It ended, or did not serve in time; the message carries the end of its log.
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
                # Between the look for a free port and its use somebody else may take it.
                if attempt == attempts or self.port_taken not in str(error):
                    raise
        self._served = True
        return self

    def kill(self) -> None:
        """Kills the server with SIGKILL, as a crash would; the data stays. Idempotent."""
        if self._process:
            self._process.kill()

    def pause(self) -> None:
        """Freezes the server (SIGSTOP): connections stay open and nothing answers."""
        self._alive().signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets a paused server go on."""
        self._alive().signal_all(signal.SIGCONT)

    def close(self) -> None:
        """Stops the server and deletes its folder if that is a temporary one; idempotent."""
        if os.getpid() != self._owner:
            return  # A forked child inherits the object, but the server is its parent's.
        atexit.unregister(self.close)
        self._shut_down()
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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

    @abstractmethod
    def _choose_ports(self) -> None: ...

    @abstractmethod
    def _launch(self) -> ServerProcess: ...

    @abstractmethod
    def _ready(self) -> bool: ...

    @abstractmethod
    def _shut_down(self) -> None:
        """Stops the server in the way that is quickest without harm."""
