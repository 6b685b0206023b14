"""Threads that know what their log lines are about."""

from __future__ import annotations

from contextvars import Context, copy_context
from threading import Thread


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
