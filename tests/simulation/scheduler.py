"""Virtual time: a heap of events, and the hosts on which some of them happen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import Any

from greenlet import getcurrent

Action = Callable[..., object]


class Scheduler:
    """Runs events in the order of their times; those of one time in the order they were asked for.

    Attributes:
        now: The true time in seconds, which nobody in the simulated world can read.
        steps: How many events have run.
        greenlet: The stack on which they run.
        over: Whether the history has ended; threads that are left end without a word.
    """

    __slots__ = ("_count", "_failed", "_heap", "greenlet", "now", "over", "steps")

    def __init__(self) -> None:
        self.now = 0.0
        self.steps = 0
        self.greenlet = getcurrent()
        self.over = False
        self._failed: Exception | None = None
        self._heap: list[tuple[float, int, Action, tuple[Any, ...]]] = []
        self._count = 0

    def at(self, time: float, action: Action, *arguments: Any) -> None:
        """Has ``action`` called at a time."""
        self._count += 1
        heappush(self._heap, (time, self._count, action, arguments))

    def after(self, delay: float, action: Action, *arguments: Any) -> None:
        """Has ``action`` called after ``delay`` seconds."""
        self._count += 1
        heappush(self._heap, (self.now + delay, self._count, action, arguments))

    def run(self, until: float) -> None:
        """Runs all events up to a time."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, action, arguments = heappop(heap)
            self.steps += 1
            action(*arguments)
            if self._failed is not None:
                raise self._failed
        self.now = until

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Has an error end the history also if the product's code handles it."""
        try:
            yield
        except Exception as error:
            self._failed = self._failed or error
            raise


class Host:
    """One operating-system process: what happens there waits while it stands still, and ends with it.

    Attributes:
        alive: Whether it has not been killed.
        paused: Whether it stands still.
        paused_at: When it last began to.
        died_at: When it was killed.
        scheduler: Runs its events.
        wall: How far its wall clock is ahead of the true time.
    """

    __slots__ = ("_held", "_lag", "alive", "died_at", "name", "paused", "paused_at", "scheduler", "wall")

    def __init__(self, name: str, scheduler: Scheduler) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.paused_at = self.died_at = float("inf")
        self.wall = 0.0
        self._lag = 0.0
        self.scheduler = scheduler
        self._held: list[tuple[Action, tuple[Any, ...]]] = []

    @property
    def runs(self) -> bool:
        """Whether its threads may go on."""
        return self.alive and not self.scheduler.over

    def clock(self) -> float:
        """Returns the host's monotonic clock."""
        return self.scheduler.now - self._lag

    def do(self, action: Action, *arguments: Any) -> None:
        """Does something here, now or when the host goes on."""
        if self.paused:
            self._held.append((action, arguments))
        elif self.alive:
            action(*arguments)

    def after(self, delay: float, action: Action, *arguments: Any) -> None:
        """Has something done here after ``delay`` seconds."""
        self.scheduler.at(self.scheduler.now + delay, self.do, action, *arguments)

    def pause(self) -> None:
        """Freezes the host; what it has handed to the network travels on."""
        self.paused = True
        self.paused_at = self.scheduler.now

    def resume(self, *, counted: bool) -> None:
        """Lets the host go on where it stood.

        Args:
            counted: Whether the monotonic clock went on meanwhile; after a suspend it may not have.
        """
        if not (self.alive and self.paused):
            return
        self.paused = False
        if not counted:
            self._lag += self.scheduler.now - self.paused_at
        held, self._held = self._held, []
        for action, arguments in held:
            self.after(0.0, action, *arguments)

    def kill(self) -> None:
        """Ends the host; what it has handed to the network travels on."""
        if self.alive:
            self.alive = self.paused = False
            self.died_at = self.scheduler.now
            self._held.clear()
