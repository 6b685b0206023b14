"""Whether processes run, are stopped, or have ended, thread by thread."""

from __future__ import annotations

import contextlib
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_GLANCE = 0.002
"""Seconds between two looks."""

# As /proc and ps call them. A thread that waits for the disk (D) stops before it runs again.
_STOPPED, _HELD, _ENDED = frozenset("T"), frozenset("TtD"), frozenset("ZX")


def is_held(pid: int) -> bool:
    """Returns whether no thread of a process, which has got a signal to stop, runs or will run."""
    return _states(pid) <= _HELD


def is_free(pid: int) -> bool:
    """Returns whether no thread of a process is stopped."""
    return _STOPPED.isdisjoint(_states(pid))


def has_ended(pid: int) -> bool:
    """Returns whether all threads of a process have ended; its ports are then closed."""
    return not _states(pid)


def wait_until(settled: Callable[[int], bool], pids: Iterable[int], timeout: float) -> list[int]:
    """Waits until all processes are as wanted, but no longer than ``timeout`` seconds; returns the others."""
    deadline = time.monotonic() + timeout
    while True:
        waiting = [pid for pid in pids if not settled(pid)]
        if not waiting or time.monotonic() > deadline:
            return waiting
        time.sleep(_GLANCE)


def _states(pid: int) -> set[str]:
    """Returns the states of a process's living threads; on other systems than Linux, that of the process."""
    if Path("/proc/self/task").is_dir():
        states, threads = set[str](), list[Path]()
        with contextlib.suppress(OSError):  # the process has ended, perhaps just now
            threads += Path(f"/proc/{pid}/task").iterdir()
        for each in threads:
            with contextlib.suppress(OSError):  # it has ended meanwhile
                states.add((each / "stat").read_text(errors="replace").rpartition(") ")[2][:1])
    else:
        command = ["ps", "-o", "state=", "-p", str(pid)]
        told = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - POSIX puts ps on every PATH
        states = {told.stdout.strip()[:1]} - {""}
    return states - _ENDED
