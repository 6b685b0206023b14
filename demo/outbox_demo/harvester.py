"""A harvester of the demonstration: ``outbox run`` as a child process, which can be killed."""

import contextlib
import os
import signal
import sys
from pathlib import Path

from outbox_sdk import OutboxError
from outbox_servers.services.process import ServerProcess, descendants


class Harvester:
    """A harvester process; it does not outlive this one.

    Args:
        name: Its name among its competitors.
        settings: Its configuration file; its log and temporary files go into the same folder.
    """

    def __init__(self, name: str, settings: Path) -> None:
        self.name = name
        self.killed = False
        folder = settings.parent
        scratch = folder / f"{name}-files"
        scratch.mkdir()
        self.log = folder / f"{name}.log"
        # What the JVM and Spark leave behind when they are killed goes with the folder.
        places = {"TMPDIR": str(scratch), "SPARK_LOCAL_DIRS": str(scratch)}
        self._process = ServerProcess(
            name,
            [sys.executable, "-m", "outbox_core", "run", "--file", str(settings)],
            log=self.log,
            environment={**os.environ, **places, "PYTHONUNBUFFERED": "1"},
            orphan_folder=folder,
        )
        self._left_behind: list[int] = []

    def check(self) -> None:
        """Makes sure that the process is alive, or was killed on purpose.

        Raises:
            OutboxError: It ended by itself; the message carries the end of its log.
        """
        if not self.killed and not self._process.running:
            raise OutboxError(
                f"{self.name} ended by itself. The end of its log, {self.log}:\n{self._process.log_tail()}"
            )

    def log_tail(self) -> str:
        """Returns the last lines of its log."""
        return self._process.log_tail()

    def kill(self) -> None:
        """Kills the process itself with SIGKILL; its JVM and its workers must notice that by themselves."""
        self._left_behind = descendants(self._process.pid)
        self.killed = True
        os.kill(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Ends the process and whatever it started. Idempotent."""
        self._process.kill()
        for pid in self._left_behind:
            # A process id may have been given to somebody else; the group tells whose it is.
            with contextlib.suppress(ProcessLookupError):
                if os.getpgid(pid) == self._process.pid:
                    os.kill(pid, signal.SIGKILL)
