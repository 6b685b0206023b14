"""Has slow questions answered on a thread of its own, and heeds the answers on the caller's."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeVar

Answer = TypeVar("Answer")


class Aside:
    """Asks one question after the other; used by one thread, which never waits but in ``close``.

    The thread begins with a question and ends when none is left.
    """

    def __init__(self) -> None:
        self._questions: list[Callable[[], Callable[[], None]]] = []
        self._heeding: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread: Thread | None = None

    def __bool__(self) -> bool:
        """Tells whether any question has not been answered and heeded."""
        return self._thread is not None

    def ask(self, question: Callable[[], Answer], heed: Callable[[Answer], None]) -> None:
        """Has a question answered.

        Args:
            question: Is called on the other thread; raises nothing.
            heed: Takes its answer, during :meth:`serve`. It may ask again.
        """

        def answer() -> Callable[[], None]:
            found = question()
            return lambda: heed(found)

        self._questions.append(answer)
        self._begin()

    def serve(self) -> None:
        """Heeds an answer, if one is there."""
        try:
            heed = self._heeding.get_nowait()
        except Empty:
            return
        self._thread = None
        heed()
        self._begin()

    def close(self) -> None:
        """Waits for the question that is being answered; no answer is heeded any more. Idempotent."""
        self._questions.clear()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _begin(self) -> None:
        if self._questions and self._thread is None:
            answer = self._questions.pop(0)
            self._thread = Thread(
                target=lambda: self._heeding.put(answer()), name="outbox-kafka-aside", daemon=True
            )
            self._thread.start()
