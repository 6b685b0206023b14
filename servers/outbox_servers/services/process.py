"""A server as a child process: its log, its readiness, and its end together with this interpreter."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections import deque
from typing import TYPE_CHECKING

from outbox_api.base.errors import OutboxError

from outbox_servers.services.thread_states import has_ended, is_free, is_held, wait_until
from outbox_servers.services.uninterrupted import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

POLL_INTERVAL = 0.02
"""Seconds between two checks whether a server is ready."""

# Below the ephemeral range of Linux (from 32768) and macOS (from 49152): while a server is down, a client
# that keeps connecting to an ephemeral port may get the same port as its own, and the server cannot listen
# on it again.
PORTS = range(20000, 32768)

# The last ports that this process has been given, each marked by a UDP socket of the same number. So no other
# process is given one of them, while its server does not listen yet or is down.
_MARKS: deque[int] = deque()  # their file descriptors
_MARKED_PORTS = 100

_SIGNAL_SECONDS = 60.0
"""The longest that a signal may take to have its effect on all threads."""
_AGAIN_SECONDS = 1.0
"""Seconds after which a signal without effect is sent again."""

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

    code = "OUTBOX-SERVICE"


def free_port() -> int:
    """Returns a TCP port of 127.0.0.1 on which no process listens at this moment.

    No other process is given the same port until this one has ended, or has been given a hundred more.

    Raises:
        ServiceError: A thousand random ports were all taken.
    """
    for _ in range(1000):
        port = random.choice(PORTS)  # noqa: S311 - spreads ports over processes, no secret
        mark = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            mark.bind(("127.0.0.1", port))
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except OSError:
            mark.close()
            continue
        _MARKS.append(mark.detach())
        if len(_MARKS) > _MARKED_PORTS:
            os.close(_MARKS.popleft())
        return port
    raise ServiceError(
        f"No free TCP port found between {PORTS.start} and {PORTS.stop - 1}; stop some servers."
    )


def descendants(pid: int) -> list[int]:
    """Returns the process ids of all children of ``pid`` and their children, parents before children.

    If ``pid`` leads a process group, those of the group count too, even if their parents have ended.
    """
    table = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,pgid="],  # noqa: S607 - POSIX puts ps on every PATH
        check=True,
        capture_output=True,
        text=True,
    )
    children: dict[int, list[int]] = {}
    for line in table.stdout.splitlines():
        child, parent, group = map(int, line.split())
        if child != pid:
            children.setdefault(pid if group == pid else parent, []).append(child)
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
        with uninterrupted(self.kill):
            self._start(command, environment, account, orphan_signal, orphan_folder)

    def _start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None,
        account: tuple[int, int] | None,
        orphan_signal: str,
        orphan_folder: Path | None,
    ) -> None:
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - the command is built by the services
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=None if environment is None else dict(environment),
                cwd=self.log.parent,
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
        """Sends the first process a signal and waits for its end; kills it after ``timeout`` seconds.

        Its descendants have as long to end after it.
        """
        if self.running:
            self._process.send_signal(stop_signal)
            family = self._signal(signal.SIGCONT, is_free)
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
            wait_until(has_ended, family, timeout)
        self._release()

    def kill(self) -> None:
        """Kills the server and all its descendants, and waits until they have ended; idempotent.

        All stop first, so none sees another one end, or starts a new one meanwhile. Their ports are closed
        afterwards.

        Raises:
            ServiceError: One has not ended within a minute.
        """
        if self.running:
            try:
                family = self._signal(signal.SIGSTOP, is_held)
            except ServiceError:
                family = [self.pid, *descendants(self.pid)]  # what does not stop can be killed all the same
            self._send(family, signal.SIGKILL, has_ended)
        self._process.wait()
        self._release()

    def pause(self) -> None:
        """Stops every thread of the server and all its descendants, and waits until they have stopped.

        Raises:
            ServiceError: One has not stopped within a minute.
        """
        self._signal(signal.SIGSTOP, is_held)

    def resume(self) -> None:
        """Continues the server and all its descendants, and waits until no thread is stopped.

        Raises:
            ServiceError: One has not continued within a minute.
        """
        self._signal(signal.SIGCONT, is_free)

    def _signal(self, number: signal.Signals, settled: Callable[[int], bool]) -> list[int]:
        """Sends a signal to the server and all its descendants until it has had its effect on each.

        Returns:
            Their process ids, parents first.

        Raises:
            ServiceError: It has had none on one of them within a minute.
        """
        family: list[int] = []
        new = [self.pid]  # alone at first: a stopped process starts no others
        while new:
            family += new
            self._send(new, number, settled)
            new = [pid for pid in descendants(self.pid) if pid not in family]
            if number is signal.SIGCONT:
                # A running server may start others all the time.
                new = [pid for pid in new if not settled(pid)]
        return family

    def _send(self, pids: Sequence[int], number: signal.Signals, settled: Callable[[int], bool]) -> None:
        """Sends a signal to processes until it has had its effect on each.

        Raises:
            ServiceError: It has had none on one of them within a minute.
        """
        deadline = time.monotonic() + _SIGNAL_SECONDS
        waiting = list(pids)
        while waiting:
            for pid in waiting:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            waiting = wait_until(settled, waiting, _AGAIN_SECONDS)
            if waiting and time.monotonic() > deadline:
                raise ServiceError(
                    f"{number.name} had no effect on {waiting} of {self.name} in {_SIGNAL_SECONDS:g} seconds."
                )

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
