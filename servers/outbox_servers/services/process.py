"""A server as a child process: its log, its readiness, and its end together with this interpreter."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING

from outbox_sdk.errors import OutboxError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

POLL_INTERVAL = 0.02
"""Seconds between two checks whether a server is ready."""

# Below the ephemeral range of Linux (from 32768) and macOS (from 49152): while a server is down, a client
# that keeps connecting to an ephemeral port may get the same port as its own, and the server cannot listen
# on it again.
PORTS = range(20000, 32768)

# The guard reads from a pipe of this interpreter. A line means that the server was stopped in order; end of
# file means that the interpreter has ended, for whatever reason. This works for SIGKILL, on Linux and macOS.
# The kernel's parent-death signal would arrive as soon as the *thread* that started the server ends.
_GUARD = """
trap '' INT TERM HUP
read -r _ && exit
kill -s "$2" -- "-$1"; kill -s CONT -- "-$1"
tries=50
while [ $tries -gt 0 ] && kill -0 -- "-$1"; do sleep 0.1; tries=$((tries - 1)); done
[ -z "$3" ] || rm -rf -- "$3"
"""


class ServiceError(OutboxError):
    """A service was not found, did not start, or did not answer; the message has the end of its log."""


def free_port() -> int:
    """Returns a TCP port of 127.0.0.1 on which no process listens at this moment.

    Raises:
        ServiceError: A thousand random ports were all taken.
    """
    for _ in range(1000):
        port = random.choice(PORTS)  # noqa: S311 - spreads ports over processes, no secret
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
    """A running server in a session of its own, which ends with this interpreter.

    Args:
        name: Its name in error messages.
        command: Program and arguments.
        log: The file to which its output is appended.
        environment: Its whole environment; by default that of this process.
        account: User and group id to run as; by default those of this process.
        orphan_signal: The signal that it receives if this interpreter ends, for example ``KILL``.
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
            self._process = subprocess.Popen(  # noqa: S603 - the command is built by the services
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
        self._guard = subprocess.Popen(  # noqa: S603 - a constant script; the folder is an argument
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
        """Waits until ``ready`` returns true; calls it repeatedly.

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
        """Sends the first process a signal and waits for its end; kills it after ``timeout`` seconds."""
        if self.running:
            self._process.send_signal(stop_signal)
            self.signal_all(signal.SIGCONT)
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
        self._release()

    def kill(self) -> None:
        """Kills the server and its child processes, and waits until it has ended; idempotent."""
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
        """Returns the last lines that this process, not an earlier one, wrote to the log."""
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
