"""One lane as one object behind one lock, and what is done for it without that lock.

Each loop of :mod:`outbox_core.lanes.loops` is a thread. It asks the lane for its next work, does it, and
hands over what came of it with the next question. A loop for which nothing is due waits on a condition of
its own. Two rules keep that right:

* A loop's ``due`` alone says whether it has something to do. Whoever changes what that rests on leaves the
  lock through :meth:`Lane.ask`, which wakes the loops that would come too late.
* Nothing is sent, asked, or logged while the lock is held.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from time import monotonic, sleep
from typing import NamedTuple, Protocol, TypeVar

from outbox_api import DriverError, Fence, LeadershipLost, PartitionedSender
from outbox_api.support.context_thread import ContextThread

from outbox_core.control.protocol import REPORT_SECONDS, LaneControl
from outbox_core.delivery.retries import RetryPolicy
from outbox_core.lanes.database import Database
from outbox_core.lanes.pauses import Pauses
from outbox_core.lanes.telemetry import Telemetry

NEVER = float("inf")
LONGEST_WAIT = 60.0
"""The longest wait of a loop that others wake."""
MOST_LOOPS = 3
REST_SECONDS = 20.0
"""How long a connection without requests is kept; an empty outbox then has one less."""

Taken = TypeVar("Taken")
Ask = Callable[["Settled | None"], Taken | None]
"""Asks a lane for the next work of a loop, and tells what came of the one before, see :meth:`Lane.ask`."""
Settled = Callable[[float], None]
"""Tells the lane, at this time, what came of something; with the lock."""


_LEFT = {"purged_per_second": 0, "in_flight": 0, "waiting": 0, "left": True}


class Condition(Protocol):
    """Lets threads wait that hold a lock; a :class:`threading.Condition` does."""

    def wait(self, timeout: float) -> object:
        """Releases the lock until :meth:`notify`, or for so many seconds."""
        ...

    def notify(self) -> None:
        """Wakes a thread that waits."""
        ...


Join = Callable[[float], object]
"""Waits for the end of a thread, for at most so many seconds."""


class Threads:
    """What lanes run on: threads of this process."""

    def clock(self) -> float:
        """Returns seconds on a clock that never goes back."""
        return monotonic()

    def sleep(self, seconds: float) -> None:
        """Waits."""
        sleep(seconds)

    def lock(self, conditions: int) -> tuple[AbstractContextManager[object], Sequence[Condition]]:
        """Returns a new lock, and so many conditions on it."""
        lock = threading.Lock()
        return lock, [threading.Condition(lock) for _ in range(conditions)]

    def spawn(self, run: Callable[[], None], name: str) -> Join:
        """Starts a thread."""
        thread = ContextThread(target=run, name=name, daemon=True)
        thread.start()
        return thread.join


class Loop:
    """One of a lane's loops. All is called with the lane's lock held."""

    def __init__(self, condition: Condition, due: Callable[[], float], longest: float) -> None:
        self.due = due
        self._condition = condition
        self._longest = longest
        self._until: float | None = None  # while it waits

    def wait(self, now: float, due: float) -> None:
        """Waits until it is due, or is told that it may be."""
        self._until = due
        self._condition.wait(min(due - now, self._longest))
        self._until = None

    def tell(self, *, over: bool) -> None:
        """Wakes it if it would come too late, or if all is over."""
        if self._until is not None and (over or self.due() < self._until):
            self._until = None
            self._condition.notify()


Settle = Callable[[float, float], None]
"""Tells the lane what came of a work, after so many seconds, and at which time; with the lock."""


def _ends_the_lane(_now: float, error: Exception) -> None:
    raise error


class Work(NamedTuple):
    """Something to do at the database, by a loop.

    Attributes:
        name: What log lines and measurements call it.
        run: Does it, without the lock.
        failed: Takes the time and the error after which its outcome is unknown, with the lock; raises what
            ends the lane.
    """

    name: str
    run: Callable[[Database], Settle]
    failed: Callable[[float, Exception], None] = _ends_the_lane


def _rest(database: Database) -> Settle:
    """Disconnects, as there was nothing to do for a while."""
    database.close()
    return lambda _seconds, _now: None


class DatabaseLoop(Loop):
    """A loop whose work is done at the database."""

    def __init__(self, condition: Condition, due: Callable[[], float], take: Callable[[float], Work]) -> None:
        super().__init__(condition, self._work_due, LONGEST_WAIT)
        self._of_lane, self._take = due, take
        self._rest_at = NEVER

    def take(self, now: float) -> Work:
        """Returns what to do."""
        if self._of_lane() <= now:
            self._rest_at = now + REST_SECONDS
            return self._take(now)
        self._rest_at = NEVER
        return Work("rest", _rest)

    def _work_due(self) -> float:
        return min(self._of_lane(), self._rest_at)


class Lane(ABC):
    """One lane, for one epoch.

    Attributes:
        over: Whether it has ended.
        drained: Whether it has ended as it was told to drain, and has.
        pauses: What of its outbox is paused.
        policy: How it retries.
        partitioned: Its sender, if that knows of partitions.
        error: What it has ended with, if it has failed.
    """

    def __init__(  # noqa: PLR0917 - its subclasses give them by place
        self,
        number: int,
        fence: Fence,
        control: LaneControl,
        telemetry: Telemetry,
        threads: Threads,
        pauses: Pauses,
        policy: RetryPolicy,
    ) -> None:
        self.over = self.drained = False
        self.error: Exception | None = None
        self.fence = fence
        self.number = number
        self.telemetry = telemetry
        self.pauses = pauses
        self.policy = policy
        self.partitioned: PartitionedSender | None = None
        self._control = control
        self._clock = threads.clock
        self._lock, conditions = threads.lock(MOST_LOOPS)
        self._conditions = iter(conditions)
        self._loops: list[Loop] = []

    # --- for its loops ------------------------------------------------------------------------------

    def ask(self, loop: Loop, take: Callable[[float], Taken | None], settle: Settled | None) -> Taken | None:
        """Takes what a loop has to do next, and waits for that; ``None`` if the lane has ended.

        ``take`` returns it, once the loop is due; or ``None`` if there was less to do than it seemed.

        Raises:
            Exception: What came of it ends the lane.
        """
        while True:
            with self._lock:
                if settle is not None:
                    self.telemetry.unacknowledged.replied(loop)
                    if not self.over:
                        settle(self._clock())
                settle, taken = None, self._take_or_wait(loop, take)
            if self.telemetry.has_lines:
                self.telemetry.write_lines()
            if taken is not None or self.over:
                return taken

    def end(self, error: Exception | None = None) -> None:
        """Ends the lane for all its loops; the first error counts."""
        with self._lock:
            if not self.over:
                self.error = error
            self._end()
        self.telemetry.write_lines()

    def heed_partitions(self) -> None:
        """Has the sender look at topics anew if a pause has ended, and tells of those that have changed.

        For the loop that sends, between what it has taken and the sender. Partitions are added in a pause.
        """
        if (sender := self.partitioned) is None:
            return
        with self._lock:
            ended = self.pauses.take_ended()
        if ended:
            sender.refresh()
        if changed := sender.take_repartitioned():
            with self._lock:
                self.telemetry.repartitioned(changed)

    def say_left(self, database: Database) -> None:
        """Says beside the fence that the lane has drained, if it has: its silence counts from now.

        For the loop that writes heartbeats, at its end.
        """
        if not self.drained:
            return
        with self._lock:
            told = {**self.pauses.as_data(), **_LEFT}
            metrics = self.telemetry.next_heartbeat(self._clock(), self.policy, told)
        with suppress(DriverError, LeadershipLost):  # others then learn it by its silence
            database.write_heartbeat(self.fence, metrics)

    def may_work(self) -> bool:
        """Returns whether the lane may send at this moment; does not wait for the lock."""
        return not self.over and self._clock() < self._control.lease_until

    # --- with the lock ------------------------------------------------------------------------------

    def failed(self, work: Work, error: Exception, seconds: float, now: float) -> None:
        """Handles that something has failed, after so many seconds.

        Raises:
            Exception: It ends the lane.
        """
        self.telemetry.failed_to_answer(now, error, seconds)
        work.failed(now, error)

    @abstractmethod
    def _look(self, now: float) -> None:
        """Takes note of the time and of orders, and updates the telemetry."""

    @abstractmethod
    def _settle(self, now: float, /) -> None:
        """Follows up on what has changed."""

    def _take_or_wait(self, loop: Loop, take: Callable[[float], Taken | None]) -> Taken | None:
        now = self._clock()
        if self._control.stopped:
            self._end()
        if not self.over:
            self._look(now)
            self._settle(now)
        if self.over:
            return None
        taken = None
        if (due := loop.due()) <= now:
            taken = take(now)
            if isinstance(taken, Work):
                self.telemetry.unacknowledged.asks(loop, now)
            self._settle(now)
        for each in self._loops:
            each.tell(over=False)
        if due > now and not self.telemetry.has_lines:
            loop.wait(now, due)
        return taken

    def _end(self) -> None:
        self.over = True
        self.telemetry.unacknowledged.left()
        for loop in self._loops:
            loop.tell(over=True)

    def _loop(
        self, due: Callable[[], float], take: Callable[[float], Taken | None], longest: float = REPORT_SECONDS
    ) -> Ask[Taken]:
        """Makes a loop. One at least looks every ``REPORT_SECONDS`` for orders of the leader."""
        self._loops.append(loop := Loop(next(self._conditions), due, longest))
        return partial(self.ask, loop, take)

    def _database_loop(self, due: Callable[[], float], take: Callable[[float], Work]) -> Ask[Work]:
        self._loops.append(loop := DatabaseLoop(next(self._conditions), due, take))
        return partial(self.ask, loop, loop.take)
