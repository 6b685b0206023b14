"""A thread beside the lane's own that waits for the database or the broker in its place."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

Work = TypeVar("Work")
Answer = TypeVar("Answer")

CLOSE_SECONDS = 1.0
"""How long a thread that hangs in the database or the broker is waited for when the lane ends."""


class Worker(Generic[Work, Answer]):
    """Carries out one thing after the other, each of which takes its time.

    Args:
        name: The thread's name.
        carry_out: Called in the thread; returns the answer, or ``None`` where none is expected.
        end: Called in the thread at last.
        announce: Called in the thread whenever an answer is there.
    """

    def __init__(
        self,
        name: str,
        carry_out: Callable[[Work], Answer | None],
        end: Callable[[], None],
        announce: Callable[[], None],
    ) -> None:
        self._carry_out = carry_out
        self._end = end
        self._announce = announce
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        self._answers: SimpleQueue[Answer | Exception] = SimpleQueue()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Work) -> None:
        """Has something carried out; :meth:`answer` tells what came of it."""
        self._work.put(work)

    def answer(self) -> Answer | None:
        """Returns the next answer; ``None`` while there is none.

        Raises:
            Exception: What was raised instead of an answer.
        """
        if self._answers.empty():
            return None
        answer = self._answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        """Finishes what was submitted; does not wait long for what hangs."""
        self._work.put(None)
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                answer = self._carry_out(work)
            except Exception as error:  # noqa: BLE001 - raised again in the lane's own thread
                self._answers.put(error)
            else:
                if answer is None:
                    continue
                self._answers.put(answer)
            self._announce()
        self._end()
