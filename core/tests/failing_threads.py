"""A harvester one of whose threads fails: ``python failing_threads.py NOTES KIND HOW ARGUMENTS…``.

It writes a line into the file NOTES for each kind of thread that starts, and ``failed`` once one of KIND has
failed: at its start, or in the midst of its work (HOW is ``start`` or ``loop``). The arguments are those of
the command ``outbox``.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextvars import Context
from functools import partial, partialmethod
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any

from outbox_core.cli import main

SETTLED_SECONDS = 1.0
"""How old a thread is when it fails in its work."""
DEEPEST = 7
"""It fails in a function so many calls below the start of its thread at most, the product's counted alone."""

_start, _run = threading.Thread.start, threading.Thread.run


def kind_of(thread: threading.Thread) -> str:
    """Returns the name of the product's function that a thread runs; empty if it runs another's."""
    target: Any = vars(thread)["_target"]
    for _ in range(3):
        if isinstance(target, partial):
            target = target.func
        elif isinstance(getattr(target, "__self__", None), Context):
            target = vars(thread)["_args"][0]
    module = getattr(target, "__module__", None) or ""
    return f"{module}.{target.__qualname__}" if module.startswith("outbox_") else ""


class Saboteur:
    """Makes one thread of a kind fail, once."""

    def __init__(self, notes: Path, kind: str, how: str) -> None:
        self._notes, self._kind, self._how = notes, kind, how
        self._done = False
        self._lock = threading.Lock()

    def note(self, line: str) -> None:
        """Writes a line."""
        with self._lock, self._notes.open("a") as file:
            file.write(f"{line}\n")

    def start(self, thread: threading.Thread) -> None:
        """Starts a thread, or does not."""
        kind = kind_of(thread)
        if kind:
            self.note(kind)
        if self._how == "start" and kind == self._kind and not self._done:
            self._fail("can't start new thread")
        _start(thread)

    def run(self, thread: threading.Thread) -> None:
        """Runs a thread, whose work may fail."""
        if self._how == "loop" and kind_of(thread) == self._kind and not self._done:
            sys.settrace(self._traced(monotonic()))
        _run(thread)

    def _traced(self, since: float) -> Any:
        def trace(frame: FrameType, event: str, _: object) -> None:
            if event == "call" and monotonic() - since > SETTLED_SECONDS and not self._done:
                depth = 0
                each: FrameType | None = frame
                while each is not None:
                    depth += "outbox_" in each.f_code.co_filename
                    each = each.f_back
                if "outbox_" in frame.f_code.co_filename and 1 < depth <= DEEPEST:
                    sys.settrace(None)
                    self._fail(f"injected into {frame.f_code.co_qualname}")

        return trace

    def _fail(self, text: str) -> None:
        self._done = True
        self.note("failed")
        raise RuntimeError(text)


def _of_thread(thread: threading.Thread, method: Callable[[threading.Thread], None]) -> None:
    method(thread)


def sabotaged(notes: str, kind: str, how: str, *arguments: str) -> None:
    """Runs the command."""
    saboteur = Saboteur(Path(notes), kind, how)
    for name, method in (("start", saboteur.start), ("run", saboteur.run)):
        setattr(threading.Thread, name, partialmethod(_of_thread, method))
    sys.argv = ["outbox", *arguments]
    main()


if __name__ == "__main__":
    sabotaged(*sys.argv[1:])
