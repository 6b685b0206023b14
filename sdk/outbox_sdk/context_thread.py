"""Threads that know what their log lines are about."""

from __future__ import annotations

from contextvars import Context, copy_context
from threading import Thread


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
