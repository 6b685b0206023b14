"""Waits no longer than it wants for a call that may never return."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread

Call = Callable[[], object]
Outcome = SimpleQueue[Exception | None]


class Bounded:
    """Makes calls on a thread of its own, one after the other; used by one thread at a time.

    The thread begins with the first call and lasts, as starting one takes up to a millisecond. It keeps no
    process from ending.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Call, Outcome] | None] | None = None

    def call(self, call: Call, timeout: float) -> bool:
        """Runs ``call``; returns whether it has returned within ``timeout`` seconds.

        If it has not, it goes on behind the caller's back, and what is called next has another thread.

        Raises:
            Exception: What ``call`` raised within that time.
        """
        if self._calls is None:
            self._calls = SimpleQueue()
            Thread(target=_serve, args=(self._calls,), name="outbox-kafka-bounded", daemon=True).start()
        outcome: Outcome = SimpleQueue()
        self._calls.put((call, outcome))
        try:
            raised = outcome.get(timeout=timeout)
        except Empty:
            self.close()
            return False
        if raised is not None:
            raise raised
        return True

    def close(self) -> None:
        """Lets the thread end, as soon as a call that it is still busy with returns. Idempotent."""
        if self._calls is not None:
            self._calls.put(None)
            self._calls = None


def _serve(calls: SimpleQueue[tuple[Call, Outcome] | None]) -> None:
    while (job := calls.get()) is not None:
        call, outcome = job
        raised = None
        try:
            call()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is raised where it was asked for
            raised = error
        outcome.put(raised)
        del job, call, outcome, raised  # what they refer to may be waiting to be dropped
