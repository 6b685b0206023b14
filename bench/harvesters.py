"""Harvesters that compete, some of which are killed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from environment import wait_for

COUNT = 2
"""A leader and a standby."""


class Harvesters:
    """Two processes of ``outbox run``, each with a log beside its settings.

    Args:
        settings: Writes the configuration file of a harvester of that name; returns its path.
    """

    def __init__(self, settings: Callable[[str], Path]) -> None:
        self._settings = settings
        self._count = 0
        self._running: list[tuple[Path, subprocess.Popen[bytes]]] = []

    def start(self) -> None:
        """Starts one more; does not wait for it."""
        self._count += 1
        settings = self._settings(f"harvester-{self._count}")
        log = settings.with_suffix(".log")
        command = [sys.executable, "-m", "outbox_core", "run", "-f", str(settings)]
        with log.open("w") as errors:
            self._running.append((log, subprocess.Popen(command, stderr=errors)))

    def restore(self) -> None:
        """Makes them two: a leader, and a standby that has joined."""
        while len(self._running) > COUNT:
            log, process = next(each for each in self._running if each[0] != self.leader_log())
            self._running.remove((log, process))
            process.terminate()
            process.wait()
        while len(self._running) < COUNT:
            self.start()
        for log, process in self._running:
            wait_for(str(log), "joined the election", process)
        while self.leader_log() is None:
            time.sleep(0.05)
        time.sleep(4)  # the group has settled

    def leader_log(self) -> Path | None:
        """Returns the log of the one that acquired leadership last."""
        acquired: dict[str, Path] = {}
        for log, _ in self._running:
            lines = [line for line in log.read_text().splitlines() if "leader acquired" in line]
            if lines:
                acquired[lines[-1][:30]] = log
        return acquired[max(acquired)] if acquired else None

    def kill_leader(self) -> float:
        """Kills the leader with SIGKILL; returns when."""
        leading = self.leader_log()
        log, process = next(each for each in self._running if each[0] == leading)
        self._running.remove((log, process))
        process.kill()
        process.wait()
        return time.monotonic()

    def close(self) -> None:
        """Ends all of them."""
        for _, process in self._running:
            process.kill()
            process.wait()
