"""A connection to the outbox on a thread of its own, so that a lane never waits for the database.

A lane has two: one marks and resets, the other purges. Waiting for a purge to reach the disk is the longest
wait there is, and a lane goes on to mark, send and collect deliveries meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from outbox_sdk import (
    Condition,
    Dialect,
    DriverError,
    Fence,
    LeadershipLost,
    MarkedRecord,
    OutboxTable,
    Parked,
)

from outbox_core.delivery.commands import Advance, Mark, Park, Purge, Reset
from outbox_core.lanes.worker import Worker

log = logging.getLogger(__name__)

Work = Mark | Purge | Reset | Park | Advance
"""What the database is asked to do."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a command.

    Attributes:
        command: The command.
        records: What a mark or an advance returned.
        rows: How many rows a purge, an advance's purges or a reset changed, or keys a park parked.
        error: The retryable error that was met instead; the outcome is unknown.
    """

    command: Work
    records: Sequence[MarkedRecord] = ()
    rows: int = 0
    error: DriverError | None = None


class TableThread:
    """Carries out commands one after the other.

    Args:
        name: The thread's name.
        dialect: Connects to the outbox, and again after an error.
        eligible: Which rows may be marked.
        fence: What every statement is checked against; may be replaced while nothing is out.
        parked: How much is parked.
        announce: Called whenever an answer is there.
    """

    def __init__(
        self,
        name: str,
        dialect: Dialect,
        eligible: Sequence[Condition],
        fence: Fence,
        parked: Parked,
        *,
        announce: Callable[[], None] = lambda: None,
    ) -> None:
        self.fence = fence
        self.busy = False
        """Whether a command was submitted and its answer not yet taken."""
        self.parked = parked
        """How much was parked when a reading was last written."""
        self._dialect = dialect
        self._eligible = eligible
        self._table: OutboxTable | None = None
        self._worker: Worker[Work | Mapping[str, object], Answer] = Worker(
            name, self._carry_out, self._disconnect, announce
        )

    def submit(self, command: Work) -> None:
        """Has a command carried out; :meth:`answer` tells what came of it."""
        self.busy = True
        self._worker.submit(command)

    def beat(self, reading: Mapping[str, object]) -> None:
        """Has a meter reading written beside the fence; a failure is of no consequence."""
        self._worker.submit(reading)

    def answer(self) -> Answer | None:
        """Returns what came of the command that was submitted; ``None`` while that is not known.

        Raises:
            LeadershipLost: The fence is no longer the lane's.
            DriverError: The database refuses for good.
        """
        answer = self._worker.answer()
        self.busy = self.busy and answer is None
        return answer

    def close(self) -> None:
        """Finishes what was submitted and disconnects; does not wait long for a database that hangs."""
        self._worker.close()

    def _carry_out(self, work: Work | Mapping[str, object]) -> Answer | None:
        if isinstance(work, Mapping):
            self._beat(work)
            return None
        try:
            return self._ask(self._connected(), work)
        except Exception as error:
            self._disconnect()
            if isinstance(error, DriverError) and error.retryable:
                return Answer(work, error=error)
            raise

    def _ask(self, table: OutboxTable, command: Work) -> Answer:
        match command:
            case Mark(leader_id, limit, max_bytes, excluded):
                return Answer(command, records=table.mark(self.fence, leader_id, limit, max_bytes, excluded))
            case Purge(leader_id, ids):
                return Answer(command, rows=table.purge(self.fence, leader_id, ids))
            case Reset(leader_id, ids):
                return Answer(command, rows=table.reset(self.fence, leader_id, ids))
            case Park(leader_id, poisons, ids):
                return Answer(command, rows=table.park(self.fence, leader_id, poisons, ids))
            case Advance(finished, leader_id, limit, pending, max_bytes):
                done = table.advance(self.fence, finished, leader_id, limit, pending, max_bytes)
                return Answer(command, records=done.records, rows=done.purged)

    def _beat(self, reading: Mapping[str, object]) -> None:
        try:
            table = self._connected()
            table.beat(self.fence, reading)
            self.parked = table.parked()
        except (DriverError, LeadershipLost) as error:  # the next purge meets the same trouble and tells
            log.debug("lane %d: reading not written: %s", self.fence.lane, error)
            self._disconnect()

    def _connected(self) -> OutboxTable:
        if self._table is None:
            self._table = self._dialect.connect(self._eligible)
        return self._table

    def _disconnect(self) -> None:
        if self._table is not None:
            self._table.close()
            self._table = None
