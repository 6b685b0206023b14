"""Threads that know what their log lines are about, and loops that no error ends."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import Context, copy_context
from threading import Event, Thread

from outbox_api.base.errors import OutboxError


class ContextThread(Thread):
    """A thread that starts with the context variables of the thread that starts it."""

    _of_starter: Context  # Python 3.14 has a `_context` of its own

    def start(self) -> None:
        """Starts the thread."""
        self._of_starter = copy_context()
        super().start()

    def run(self) -> None:
        """Runs the target."""
        self._of_starter.run(super().run)


def repeat(
    step: Callable[[], object],
    stopping: Event,
    seconds: float,
    log: logging.Logger,
    complaint: str,
    *,
    trouble_seconds: float | None = None,
) -> None:
    """Calls a function until ``stopping`` is set, with a pause behind each call; whatever it raises.

    An error is a warning once, until the function returns or raises another.

    Args:
        step: The function.
        stopping: Ends the loop, and a pause.
        seconds: The pause.
        log: Receives the warnings.
        complaint: What it cannot do; begins the warning.
        trouble_seconds: The pause after an error, if it is another.
    """
    told, pauses = "", (seconds, seconds if trouble_seconds is None else trouble_seconds)
    while not stopping.is_set():
        trouble = ""
        try:
            step()
        except BaseException as error:  # also SystemExit, which ends a thread without a word
            trouble = str(error) or type(error).__name__
            if trouble != told:
                defect = None if isinstance(error, OutboxError) else error
                log.warning("%s, trying again: %s", complaint, trouble, exc_info=defect)
        told = trouble
        stopping.wait(pauses[bool(trouble)])


def as_exception(error: BaseException) -> Exception:
    """Returns an error itself; for one that is none, such as ``SystemExit``, an error that names it.

    Whoever hands the errors of a thread to another must catch all: the thread would end without a word.
    """
    if isinstance(error, Exception):
        return error
    made = RuntimeError(f"{type(error).__name__} was raised in a thread: {error}")
    made.__cause__ = error
    return made
