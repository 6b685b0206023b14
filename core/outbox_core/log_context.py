"""Which harvester a log line is about, where several run in one process."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from threading import Thread

_HARVESTER: ContextVar[str] = ContextVar("harvester", default="")


@contextmanager
def log_as(harvester: str) -> Iterator[None]:
    """Names the harvester in log lines of this thread, and of each :class:`ContextThread` that it starts."""
    token = _HARVESTER.set(harvester)
    try:
        yield
    finally:
        _HARVESTER.reset(token)


class ContextThread(Thread):
    """A thread that starts with the context variables of the thread that starts it."""

    _context: Context

    def start(self) -> None:
        """Starts the thread."""
        self._context = copy_context()
        super().start()

    def run(self) -> None:
        """Runs the target."""
        self._context.run(super().run)


class HarvesterFilter(logging.Filter):
    """Sets ``harvester`` of each log record that passes: the name of the harvester that the line is about.

    Add it to a handler, whose format may then use ``%(harvester)s``.

    Args:
        default: The name for lines of threads that no harvester has started.
    """

    def __init__(self, default: str = "-") -> None:
        super().__init__()
        self._default = default

    def filter(self, record: logging.LogRecord) -> bool:
        """Sets the name, and lets every record pass."""
        record.harvester = _HARVESTER.get() or self._default
        return True
