"""Plain loops: the sequential one with a broker, and the limits, what the database alone takes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.compare.candidates import Candidate, Subject, ending, logged, started, wait
from bench.compare.servers import Place

SEQUENTIAL = Path(__file__).parents[1] / "sequential.py"
OWN = Path(__file__).with_name("own.py")


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
        with looping(
            [str(SEQUENTIAL), place.dsn, place.servers.bootstrap, *self._arguments], place
        ) as subject:
            yield subject


class Own(Candidate):
    """The statements of outbox by themselves, see :mod:`bench.compare.own`.

    Args:
        name: Its name.
        statements: ``mark`` or ``advance``.
    """

    def __init__(self, name: str, statements: str) -> None:
        super().__init__(name)
        self.statements = statements

    @contextmanager
    def running(self, place: Place) -> Iterator[Subject]:
        """Runs the statements in a loop."""
        with looping([str(OWN), place.dsn, self.statements], place) as subject:
            yield subject


@contextmanager
def looping(arguments: list[str], place: Place) -> Iterator[Subject]:
    """Runs a program in a process of its own; enters the block when it says that it is ready."""
    process = started("loop", [sys.executable, *arguments], place)
    with ending(process):
        wait(process, logged(process, "ready"))
        yield Subject({"subject": process})
