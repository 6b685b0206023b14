"""Runs blocking calls on a background thread, and hands their results to the caller's thread."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeVar

Result = TypeVar("Result")


class BackgroundCalls:
    """Runs one call after the other; used by one thread, which waits in ``close`` only.

    A background thread exists only while there are calls to run.
    """

    def __init__(self) -> None:
        self._calls: list[Callable[[], Callable[[], None]]] = []
        self._results: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread: Thread | None = None

    def __bool__(self) -> bool:
        """Returns whether the result of any call has not been handled yet."""
        return self._thread is not None

    def submit(self, call: Callable[[], Result], on_result: Callable[[Result], None]) -> None:
        """Queues a call.

        Args:
            call: Runs on the background thread; raises nothing.
            on_result: Receives the result during :meth:`poll`. It may submit another call.
        """

        def run() -> Callable[[], None]:
            result = call()
            return lambda: on_result(result)

        self._calls.append(run)
        self._start()

    def poll(self) -> None:
        """Handles a result, if there is one; does not wait."""
        try:
            handle = self._results.get_nowait()
        except Empty:
            return
        self._thread = None
        handle()
        self._start()

    def close(self) -> None:
        """Waits for the current call, and discards its result and all further calls. Idempotent."""
        self._calls.clear()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _start(self) -> None:
        if self._calls and self._thread is None:
            run = self._calls.pop(0)
            self._thread = Thread(
                target=lambda: self._results.put(run()), name="outbox-kafka-background", daemon=True
            )
            self._thread.start()
