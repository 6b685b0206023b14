"""A process that takes part in an election and says what happens to it, a line each.

It stops when its standard input ends.
"""

from __future__ import annotations

import base64
import math
import pickle
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

from outbox_api import Elector, Seam, find
from outbox_api.election import elapsed

from outbox_testkit.proxy import Proxy

_PROGRAM = f"import sys; from {__name__} import main; main(sys.argv[1])"
"""Runs :func:`main` with the specification: driver, options, and how many seconds a hand-over drains."""


@dataclass(frozen=True)
class ServiceUnderTest:
    """The service behind an elector, which nothing else uses, so that a test may disturb it.

    Attributes:
        stop: Stops it; its data stays.
        start: Starts it again with the same data, and waits until it serves.
        proxy: A proxy to it.
        options: The driver's options by way of the proxy; picklable.
    """

    stop: Callable[[], object]
    start: Callable[[], object]
    proxy: Proxy
    options: Any = field(repr=False)


@dataclass(frozen=True)
class ElectorUnderTest:
    """An elector with its service, for one election that nothing else takes part in.

    Attributes:
        driver: The entry-point name.
        options: The driver's options; picklable.
        session: Seconds after which another process leads once a leader has died.
        service: The service, if tests may disturb it.
        elects: Whether one process at a time leads; ``False`` for an elector that lets all of them lead.
        elections: How many there are in a row.
    """

    driver: str
    options: Any = field(repr=False)
    session: float
    service: ServiceUnderTest | None = None
    elects: bool = True
    elections: int = 200

    def create(self) -> Elector:
        """Creates an elector; does not connect."""
        return find(Seam.ELECTOR, self.driver).create(self.options)


@dataclass(frozen=True)
class Reported:
    """An event in a contender's life.

    Attributes:
        at: When, on the clock that all processes share, in seconds.
        what: ``started``, ``acquired``, ``revoking`` and ``revoked`` (before and after the draining),
            ``fenced``, ``failed`` with the reason, or ``stopped``.
        contender: Whose.
    """

    at: float
    what: str
    contender: Contender


class Contender:
    """The parent's view of one process."""

    def __init__(self, driver: str, options: Any, told: queue.Queue[Reported], drain: float = 0.0) -> None:
        """Starts the process.

        Args:
            driver: The elector's entry-point name.
            options: Its options.
            told: Receives its events.
            drain: For how many seconds a hand-over drains.
        """
        self._told = told
        self.killed_at = math.inf
        self.was_frozen = False
        specification = base64.b64encode(pickle.dumps((driver, options, drain))).decode()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, specification],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def stop(self) -> None:
        """Asks the process to stop, and waits for its end."""
        assert self.process.stdin is not None
        self.process.stdin.close()  # not communicate, which would read what the reader is to read
        self.process.wait(timeout=60)
        self._reader.join()

    def freeze(self) -> float:
        """Stops the process as SIGSTOP does; returns when."""
        self.was_frozen = True
        self.process.send_signal(signal.SIGSTOP)
        return elapsed()

    def thaw(self) -> float:
        """Has a frozen process go on; returns when."""
        at = elapsed()
        self.process.send_signal(signal.SIGCONT)
        return at

    def kill(self) -> float:
        """Kills the process, whatever state it is in; returns when."""
        self.killed_at = min(self.killed_at, elapsed())
        self.process.kill()
        self.process.wait()
        return self.killed_at

    def close(self) -> None:
        """Kills the process if it is alive, and closes what leads to it."""
        self.kill()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            at, _, what = line.strip().partition(" ")
            self._told.put(Reported(float(at), what, self))


class Teller:
    """A candidate that prints its events with their times."""

    def __init__(self, drain: float) -> None:
        self._drain = drain

    def acquired(self) -> None:
        """Prints it."""
        tell("acquired")

    def revoked(self) -> None:
        """Prints it, before and after draining."""
        tell("revoking")
        time.sleep(self._drain)
        tell("revoked")

    def fenced(self) -> None:
        """Prints it."""
        tell("fenced")

    def failed(self, error: Exception) -> None:
        """Prints the reason."""
        tell(f"failed {error}")


def tell(what: str) -> None:
    """Prints an event with its time."""
    sys.stdout.write(f"{elapsed()} {what}\n")
    sys.stdout.flush()


def main(specification: str) -> None:
    """Takes part until it is told to stop."""
    driver, options, drain = pickle.loads(base64.b64decode(specification))
    elector = find(Seam.ELECTOR, driver).create(options)
    elector.start(Teller(drain))
    tell("started")
    sys.stdin.readline()
    elector.stop()
    tell("stopped")
