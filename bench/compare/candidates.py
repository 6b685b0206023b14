"""What is measured: this product in its modes; the peers and the plain loops are in modules of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from outbox_servers.services.process import ServerProcess

from bench.compare.databases import DATABASES, POSTGRES
from bench.compare.servers import Place

_PROGRAM = (sys.executable, "-m", "outbox_core")

START_TIMEOUT = 120
"""Seconds that a candidate may take until it is ready."""


class CandidateError(Exception):
    """A candidate cannot be had, did not start or ended; the message says why."""


@dataclass(slots=True)
class Subject:
    """A running candidate.

    Attributes:
        processes: Its processes, each with descendants; role → process.
        empties: Whether a row is gone from the table once it is delivered.
        housekeeping: Whether an application's process deletes the rows instead.
    """

    processes: Mapping[str, ServerProcess] = field(default_factory=dict)
    empties: bool = True
    housekeeping: bool = False

    def check(self) -> None:
        """Returns if all its processes are alive.

        Raises:
            CandidateError: One has ended; the message has the end of its log.
        """
        for process in self.processes.values():
            if not process.running:
                raise CandidateError(f"{process.name} ended:\n{process.log_tail()}")


class Candidate(ABC):
    """Something that moves rows from an outbox to a topic.

    Attributes:
        name: Its name on the command line and in results.
        databases: Those that it works with.
        own_table: Whether it creates its outbox itself.
    """

    databases: tuple[str, ...] = (POSTGRES,)
    own_table = False

    def __init__(self, name: str) -> None:
        self.name = name

    def prepare(self) -> None:  # noqa: B027 - most need nothing
        """Fetches what it needs.

        Raises:
            CandidateError: It cannot be had here.
        """

    def install(self, place: Place) -> None:  # noqa: B027 - most need nothing
        """Creates what it needs at a place besides the outbox, once.

        Raises:
            CandidateError: That failed.
        """

    @abstractmethod
    def running(self, place: Place) -> AbstractContextManager[Subject]:
        """Runs it at a place until the block ends; enters the block when it is ready.

        Raises:
            CandidateError: On entering: it did not get ready.
        """

    def version(self) -> str:
        """Returns its version, for the results."""
        return ""


class Nobody(Candidate):
    """No harvester at all: what writers and the idle servers cost."""

    @contextmanager
    def running(self, place: Place) -> Iterator[Subject]:
        """Yields a subject without processes; rows stay."""
        del place
        yield Subject(empties=False)


class Product(Candidate):
    """``outbox run``, with the defaults of its documentation.

    Args:
        name: Its name.
        delivery: ``exactly-once`` or ``at-least-once``.
        engine: ``spark`` or ``inline``.
        own_table: Whether ``outbox init`` creates the table, instead of the seed's statement.
        lanes: The number of lanes and of Spark's lane groups.
        harvest: More keys below ``harvest:``.
    """

    def __init__(
        self,
        name: str,
        delivery: str,
        engine: str,
        *,
        own_table: bool = False,
        lanes: int | None = None,
        harvest: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(name)
        self.own_table = own_table
        self.databases = (POSTGRES,) if own_table else DATABASES  # elsewhere there is but one table
        self._engine = engine
        groups = {"laneGroups": lanes} if lanes and engine == "spark" else {}
        self._harvest: dict[str, object] = {
            "delivery": delivery,
            "engine": {"driver": engine, **groups},
            **({"limits": {"sendConcurrency": lanes}} if lanes else {}),
            **(harvest or {}),
        }

    def settings(self, place: Place) -> Path:
        """Writes its configuration file."""
        kafka = {"bootstrap.servers": place.servers.bootstrap}
        base = {"name": "bench", "baseKafkaConfig": kafka, "dataSource": place.dsn}
        base["dialect"] = place.servers.database.driver
        path = place.folder / "outbox.yaml"
        path.write_text(json.dumps({"harvest": {**base, **self._harvest}}))
        return path

    def install(self, place: Place) -> None:
        """Creates what is missing in the database."""
        command = [*_PROGRAM, "init", "-f", str(self.settings(place))]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise CandidateError(f"outbox init failed:\n{done.stdout}{done.stderr}")
        if self._engine == "spark":
            _make_class_data()

    @contextmanager
    def running(self, place: Place) -> Iterator[Subject]:
        """Runs a process that leads."""
        environment = os.environ | {"NO_COLOR": "1"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # users' machines keep what Python has compiled
        process = started("outbox", [*_PROGRAM, "run", "-f", str(self.settings(place))], place, environment)
        with ending(process):
            wait(process, logged(process, "leader acquired"))
            yield Subject({"subject": process})

    def version(self) -> str:
        """Returns the commit of the working tree, or the installed version."""
        command = ["git", "describe", "--always", "--dirty"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=Path(__file__).parent)
        return done.stdout.strip()


@cache
def _make_class_data() -> None:
    """Makes the archive that a harvester otherwise makes in the background, after its first start."""
    command = [sys.executable, "-m", "outbox_spark.training"]
    subprocess.run(command, check=False, capture_output=True)


def started(
    name: str, command: list[str], place: Place, environment: Mapping[str, str] | None = None
) -> ServerProcess:
    """Starts a candidate's process; it ends with this interpreter, however that ends."""
    log = place.folder / f"{name}.log"
    return ServerProcess(name, command, log=log, environment=environment)


@contextmanager
def ending(process: ServerProcess) -> Iterator[None]:
    """Ends a process and all its descendants when the block ends."""
    try:
        yield
    finally:
        try:
            process.stop(timeout=20)
        finally:
            process.kill()


def wait(process: ServerProcess, ready: Callable[[], bool], timeout: float = START_TIMEOUT) -> None:
    """Waits until a candidate is ready.

    Raises:
        CandidateError: It ended, or was not ready in time; the message has the end of its log.
    """
    until = time.monotonic() + timeout
    while not ready():
        if not process.running or time.monotonic() > until:
            state = "was not ready in time" if process.running else "ended"
            raise CandidateError(f"{process.name} {state}:\n{process.log_tail()}")
        time.sleep(0.02)


def logged(process: ServerProcess, words: str) -> Callable[[], bool]:
    """Returns a function that says whether a process's log contains ``words``."""
    return lambda: words in process.log_tail(lines=sys.maxsize)
