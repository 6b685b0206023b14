"""Limits the time that a caller waits for a call that may never return."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread

Call = Callable[[], object]
Outcome = SimpleQueue[Exception | None]


class CallTimeout:
    """Runs calls on a thread of its own, one after the other; used by one thread at a time.

    The thread starts with the first call and is kept, because starting one takes up to a millisecond. It is
    a daemon thread, so it does not keep the process alive.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Call, Outcome] | None] | None = None

    def run(self, call: Call, timeout: float) -> bool:
        """Runs ``call``; returns whether it returned within ``timeout`` seconds.

        A call that takes longer continues in the background; later calls run on another thread.

        Raises:
            Exception: What ``call`` raised within that time.
        """
        if self._calls is None:
            self._calls = SimpleQueue()
            Thread(target=_serve, args=(self._calls,), name="outbox-kafka-call", daemon=True).start()
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
        """Ends the thread once its current call has returned; does not wait. Idempotent."""
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
