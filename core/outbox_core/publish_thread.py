"""A lane's transactions on a thread of their own, so that the next batch is marked while one is committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread

from outbox_sdk import Failure, TransactionalSender

from outbox_core.commands import Publish

CLOSE_SECONDS = 1.0
"""How long a thread that hangs in the broker's client is waited for when the lane ends."""


class PublishThread:
    """Publishes one batch after the other.

    Args:
        name: The thread's name.
        sender: The lane's; closed by this thread.
        announce: Called whenever an answer is there.
    """

    def __init__(self, name: str, sender: TransactionalSender, announce: Callable[[], None]) -> None:
        self._sender = sender
        self._announce = announce
        self._work: SimpleQueue[Publish | None] = SimpleQueue()
        self._answers: SimpleQueue[Sequence[Failure] | Exception] = SimpleQueue()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, command: Publish) -> None:
        """Has a batch published; :meth:`answer` tells what came of it."""
        self._work.put(command)

    def answer(self) -> Sequence[Failure] | None:
        """Returns the failures for whose sake a batch was aborted, none once it is committed.

        ``None`` while that is not known.

        Raises:
            DriverError: The outcome is unknown, or somebody else publishes for the lane.
        """
        if self._answers.empty():
            return None
        answer = self._answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        """Finishes what was submitted and disconnects; does not wait long for a broker that hangs."""
        self._work.put(None)
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while (command := self._work.get()) is not None:
            try:
                self._answers.put(self._sender.publish(command.records, command.marker))
            except Exception as error:  # noqa: BLE001 - raised again in the lane's own thread
                self._answers.put(error)
            self._announce()
        self._sender.close()
