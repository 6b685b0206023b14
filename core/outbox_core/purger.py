"""The purging side of a lane, on a thread and a connection of its own.

Waiting for a purge to reach the disk is the longest wait there is; the marks of a lane go on meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from queue import SimpleQueue
from threading import Thread

from outbox_sdk import Dialect, DriverError, Fence, OutboxTable

from outbox_core.mpr import Purge

log = logging.getLogger(__name__)

CLOSE_SECONDS = 1.0

Work = Purge | Mapping[str, float] | None


class Purger:
    """Carries out one purge at a time.

    Args:
        dialect: Connects to the outbox.
        fence: What every statement is checked against.
    """

    def __init__(self, dialect: Dialect, fence: Fence) -> None:
        self.busy = False
        """Whether a purge was submitted and its answer not yet taken."""
        self._dialect = dialect
        self._fence = fence
        self._table: OutboxTable | None = None
        self._work: SimpleQueue[Work] = SimpleQueue()
        self._answers: SimpleQueue[Purge | Exception] = SimpleQueue()
        self._thread = Thread(target=self._run, name=f"purger-{fence.lane}", daemon=True)
        self._thread.start()

    def submit(self, command: Purge) -> None:
        """Has a purge carried out; :meth:`answer` tells what came of it."""
        self.busy = True
        self._work.put(command)

    def beat(self, numbers: Mapping[str, float]) -> None:
        """Has a meter reading written beside the fence; a failure is of no consequence."""
        self._work.put(numbers)

    def answer(self) -> Purge | DriverError | None:
        """Returns the purge that was carried out, the retryable error it met, or ``None`` for neither yet.

        Raises:
            LeadershipLost: The fence is no longer the lane's.
            DriverError: The database refuses for good.
        """
        if not self.busy or self._answers.empty():
            return None
        self.busy = False
        answer = self._answers.get()
        if isinstance(answer, Exception) and not (isinstance(answer, DriverError) and answer.retryable):
            raise answer
        return answer

    def close(self) -> None:
        """Finishes what was submitted and disconnects; does not wait long for a database that hangs."""
        self._work.put(None)
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            if isinstance(work, Purge):
                self._answers.put(self._purge(work))
            else:
                self._beat(work)
        self._disconnect()

    def _purge(self, command: Purge) -> Purge | Exception:
        try:
            self._connected().purge(self._fence, command.leader_id, command.ids)
        except Exception as error:  # noqa: BLE001 - raised again in the lane's own thread
            self._disconnect()
            return error
        return command

    def _beat(self, numbers: Mapping[str, float]) -> None:
        try:
            self._connected().beat(self._fence, numbers)
        except Exception as error:  # noqa: BLE001 - the next purge or mark meets the same trouble and tells
            log.debug("lane %d: reading not written: %s", self._fence.lane, error)
            self._disconnect()

    def _connected(self) -> OutboxTable:
        if self._table is None:
            self._table = self._dialect.connect()
        return self._table

    def _disconnect(self) -> None:
        if self._table is not None:
            self._table.close()
            self._table = None
