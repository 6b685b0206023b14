"""Plain loops: the sequential one with a broker, and the limit, what the database alone takes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.compare.candidates import Candidate, Subject, ending, logged, started, wait
from bench.compare.servers import Place

PROGRAM = Path(__file__).parents[1] / "sequential.py"


class Loop(Candidate):
    """``bench/sequential.py`` in a process of its own.

    Args:
        name: Its name.
        how: ``flush``, ``commit`` or ``discard``; the last one is the database alone.
        statements: ``mark``: delete the last batch, mark the next; ``select``: delete it, select the next.
    """

    def __init__(self, name: str, how: str, statements: str) -> None:
        super().__init__(name)
        self._arguments = (how, statements)

    @contextmanager
    def running(self, place: Place) -> Iterator[Subject]:
        """Runs the loop."""
        command = [sys.executable, str(PROGRAM), place.dsn, place.servers.bootstrap, *self._arguments]
        process = started("loop", command, place)
        with ending(process):
            wait(process, logged(process, "ready"))
            yield Subject({"subject": process})
