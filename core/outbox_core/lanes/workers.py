"""The threads of a lane that call the database and the broker.

All of them put their replies into one queue, which the lane's loop reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from queue import Empty, SimpleQueue
from time import monotonic
from typing import assert_never

from outbox_api import (
    Batch,
    ColumnIs,
    Deliveries,
    Dialect,
    Fence,
    MarkedRecord,
    OutboxTable,
    PermittedTopics,
    Sender,
)
from outbox_api.context_thread import ContextThread, as_exception

from outbox_core.delivery.commands import (
    Advance,
    Answer,
    EndTransactions,
    Heartbeat,
    Mark,
    Park,
    Publish,
    Purge,
    Refresh,
    Request,
    Reset,
    Send,
)
from outbox_core.lanes.kept_rows import KeptRows, SkippedDeadLetters
from outbox_core.lanes.turn import Reply, SendGate

CLOSE_SECONDS = 1.0
"""How long the end of a lane waits for a thread that hangs in the database or the broker."""
REST_SECONDS = 20.0
"""How long a connection without requests is kept; an empty outbox then has one less."""
POLL_SECONDS = 0.001
"""How long the sending thread waits for deliveries before it checks for more records to send."""
QUIET_SHARE = 0.1
"""It waits for this share of the time since the last delivery or record instead, if that is longer."""
IDLE_SECONDS = 0.1
"""The longest of these waits, and the wait for records while nothing is in flight."""

Replies = SimpleQueue[Reply]


class Worker:
    """Executes requests in order, on a thread of its own.

    Args:
        name: The thread's name.
        execute: Called in the thread; an error that it raises becomes the answer's error.
        end: Called in the thread at its end.
        replies: The queue for the answers.
        rest: Called in the thread when there was no request for ``REST_SECONDS``.
    """

    def __init__(
        self,
        name: str,
        execute: Callable[[Request], Answer],
        end: Callable[[], None],
        replies: Replies,
        rest: Callable[[], None] | None = None,
    ) -> None:
        self._execute = execute
        self._rest = rest
        self._end = end
        self._replies = replies
        self._requests: SimpleQueue[Request | None] = SimpleQueue()
        self._thread = ContextThread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Accepts a request; its answer comes through the queue."""
        self._requests.put(request)

    def close(self) -> None:
        """Ends the thread after the submitted requests; waits at most ``CLOSE_SECONDS``."""
        self._requests.put(None)
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        try:
            while (request := self._next()) is not None:
                self._replies.put(self._answer(request))
        except BaseException as error:  # noqa: BLE001 - ends the lane, as the error of a ``Send`` does
            self._replies.put(Answer(Send([]), error=as_exception(error)))
        finally:
            self._end()

    def _answer(self, request: Request) -> Answer:
        since = monotonic()
        try:
            answer = self._execute(request)
        except BaseException as error:  # noqa: BLE001 - the lane decides what it means
            answer = Answer(request, error=as_exception(error))
        return replace(answer, seconds=monotonic() - since)

    def _next(self) -> Request | None:
        if self._rest is not None:
            with suppress(Empty):
                return self._requests.get(timeout=REST_SECONDS)
            self._rest()
        return self._requests.get()


class Database:
    """One lane's connection to the outbox; connects with the first request, and again after an error.

    Args:
        dialect: Connects to the outbox.
        eligible: Which rows may be marked.
        fence: Returns the fence of every statement.
        table: A connection, which is used until the first error.
        lanes: How many lanes there are.
        token: The fence token of the leadership.
        about: Returns what heartbeats say besides the lane's metrics.
        topics: To which topics records may be published.
        purged: The batches that the lane's recovery has purged.
        keep_skipped: For how many seconds skipped dead letters are kept; ``None`` for ever.
    """

    def __init__(
        self,
        dialect: Dialect,
        eligible: Sequence[ColumnIs],
        fence: Callable[[], Fence],
        table: OutboxTable | None = None,
        *,
        lanes: int,
        token: int,
        about: Callable[[], Mapping[str, object]],
        topics: PermittedTopics,
        purged: Sequence[Batch] = (),
        keep_skipped: float | None = None,
    ) -> None:
        self._skipped = SkippedDeadLetters(fence().lane, keep_skipped, monotonic())
        self._kept = KeptRows(purged)
        self._dialect = dialect
        self._eligible = eligible
        self._fence = fence
        self._lanes = lanes
        self._token = token
        self._about = about
        self._topics = topics
        self._table = table

    def execute(self, request: Request) -> Answer:
        """Carries out a request.

        Raises:
            LeadershipLost: The fence is no longer the lane's.
            DriverError: The database cannot be used; the outcome is unknown.
        """
        try:
            if self._table is None:
                self._table = self._dialect.connect(self._eligible)
            return self._execute(self._table, request)
        except Exception:
            self.close()
            raise

    def close(self) -> None:
        """Disconnects."""
        table, self._table = self._table, None
        if table is not None:
            table.close()

    def _execute(self, table: OutboxTable, request: Request) -> Answer:
        fence = self._fence()
        match request:
            case Mark(leader_id, limit, max_bytes, keys, source, topics):
                marked = table.mark(fence, leader_id, limit, max_bytes, keys, source, topics)
                answer = Answer(request, records=self._topics.checked(marked))
            case Purge(leader_id, ids):
                answer = Answer(request, changed=table.purge(fence, leader_id, ids))
            case Reset(leader_id, ids):
                answer = Answer(request, changed=table.reset(fence, leader_id, ids))
            case Park(leader_id, poisons, ids):
                changed = table.park(fence, leader_id, poisons, ids)
                self._kept.parked([poison.id for poison in poisons], changed.rows)
                answer = Answer(request, changed=changed)
            case Advance(finished, pending, limit, max_bytes, source, keys, topics):
                advanced = table.advance(fence, finished, pending, limit, max_bytes, source, keys, topics)
                advanced = self._kept.checked(table, finished, advanced)
                checked = self._topics.checked(advanced.records)
                answer = Answer(request, advanced=advanced._replace(records=checked))
            case Refresh():
                entered = table.enter(fence.lane, self._lanes, self._token)
                answer = Answer(request, fence=entered, parked=table.parked())
            case EndTransactions():
                table.set_transactional(fence, None)
                answer = Answer(request)
            case Heartbeat(metrics):
                table.heartbeat(fence, {**metrics, **self._about()})
                answer = Answer(request, parked=table.parked())
                self._skipped.forget(table, monotonic())
            case Send() | Publish():
                raise TypeError(f"{request} is for the broker")
            case _:
                assert_never(request)
        return answer


class SenderThread:
    """Sends records on a thread of its own, and collects their deliveries.

    Args:
        name: The thread's name.
        sender: The broker; used and closed by the thread.
        replies: The queue for deliveries, and for an answer with an error if the sender fails.
        leading: Returns whether leadership is confirmed at this moment. Without it, waiting records are
            reported as failed: sent late, they could arrive behind those of a successor.
    """

    def __init__(self, name: str, sender: Sender, replies: Replies, leading: Callable[[], bool]) -> None:
        self._sender = sender
        self._replies = replies
        self._gate = SendGate(leading)
        self._requests: SimpleQueue[Request | None] = SimpleQueue()
        self._in_flight = 0
        self._moved_at = 0.0
        self._thread = ContextThread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Accepts records to send; their deliveries come through the queue."""
        self._requests.put(request)

    def close(self) -> None:
        """Drops records that were not sent, and those in flight, whose outcome is unknown then.

        Waits until the sender is closed: the lane's next epoch may open another only then.
        """
        self._gate.closed = True
        self._requests.put(None)  # wakes the thread
        self._thread.join()

    def _run(self) -> None:
        request: Request | None = Send([])
        try:
            while (request := self._next()) is not None and not self._gate.closed:
                if isinstance(request, Send) and request.records:
                    self._send(request.records)
                self._collect()
        except BaseException as error:  # noqa: BLE001 - the lane decides what it means
            self._replies.put(Answer(request or Send([]), error=as_exception(error)))
        finally:
            self._sender.close(0.0)

    def _next(self) -> Request | None:
        """Returns the next request, maybe an empty one; ``None`` at the end of the lane."""
        try:
            return self._requests.get(timeout=0 if self._in_flight else IDLE_SECONDS)
        except Empty:
            return Send([])

    def _send(self, records: list[MarkedRecord]) -> None:
        sending, failed = self._gate.admit(records)
        if sending:
            self._sender.send(sending)
            self._in_flight += len(sending)
            self._moved_at = monotonic()
        if failed:
            self._replies.put(Deliveries(failed=failed))

    def _collect(self) -> None:
        seconds = 0.0
        if self._in_flight and self._requests.empty():
            quiet = monotonic() - self._moved_at
            seconds = min(max(POLL_SECONDS, QUIET_SHARE * quiet), IDLE_SECONDS)
        deliveries = self._sender.poll(seconds)
        if reported := len(deliveries.delivered) + len(deliveries.failed):
            self._in_flight -= reported
            self._moved_at = monotonic()
            self._replies.put(deliveries)
