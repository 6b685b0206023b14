"""A harvester of the demonstration: ``outbox run`` as a child process, which can be killed."""

import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from outbox_api import OutboxError
from outbox_servers.services.process import ServerProcess, descendants


def start_harvester(
    name: str,
    settings: Path,
    *options: str,
    environment: Mapping[str, str] | None = None,
    orphan_folder: Path | None = None,
) -> ServerProcess:
    """Starts ``outbox run``; its log and temporary files go into the folder of its settings.

    Args:
        name: Names its log, ``NAME.log``, and the folder of its temporary files.
        settings: Its configuration file.
        options: More options of the command.
        environment: Variables to add to this process's.
        orphan_folder: A folder to delete if this interpreter dies.
    """
    folder = settings.parent
    scratch = folder / f"{name}-files"
    scratch.mkdir()
    # Files that the JVM and Spark leave when they are killed are deleted with the folder.
    places = {"TMPDIR": str(scratch), "SPARK_LOCAL_DIRS": str(scratch)}
    return ServerProcess(
        name,
        [sys.executable, "-m", "outbox_core", "run", "--file", settings.name, *options],
        log=folder / f"{name}.log",
        environment={
            **os.environ,
            **places,
            "PYTHONUNBUFFERED": "1",
            **(environment or {}),
        },
        orphan_folder=orphan_folder,
    )


class Harvester:
    """A harvester process; it does not outlive this one.

    Args:
        name: Its name among its competitors.
        settings: Its configuration file; its log and temporary files go into the same folder.
    """

    def __init__(self, name: str, settings: Path) -> None:
        self.name = name
        self.killed = False
        self._process = start_harvester(name, settings, orphan_folder=settings.parent)
        self.log = self._process.log
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
            # The process id may be in use again; the process group shows whose it is.
            with contextlib.suppress(ProcessLookupError):
                if os.getpgid(pid) == self._process.pid:
                    os.kill(pid, signal.SIGKILL)
