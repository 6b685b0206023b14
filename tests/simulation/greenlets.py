"""Threads in virtual time: plain code on greenlets, a stack for each.

Whatever the code waits for switches to the scheduler, which switches back with the reply, or never: then the
host has ended. The scheduler is every greenlet's parent.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet
from outbox_api import DriverError, LeadershipLost, OutboxError
from outbox_core.lanes import lane

from .database import FAILED, LOST
from .requests import TIMED_OUT
from .scheduler import Host
from .sender import UNKNOWN
from .trail import Violation

Then = Callable[[Any], None]
"""Takes a reply; at the end what the code returned, or the error of ``ENDS`` that ended it."""

ENDS = (OutboxError, OSError, EOFError)
"""Errors of servers and of the network."""
PREEMPTED_SHARE = 0.15
"""In how many of the places where it may a thread pauses as it releases a lock."""
PREEMPTED_SECONDS = 0.004
LEAST_WAIT = 1e-9
"""The least that a wait lasts, or the clock would not move."""
MOST_AT_ONCE = 200
"""How often a thread may take the lock without waiting for anything: one that does without end spins."""


def step(action: Callable[[Then], object]) -> Any:
    """Has the scheduler call ``action``, and returns the reply that this takes.

    Raises:
        Exception: The reply is this error of ``ENDS``, or stands for one.
    """
    current = getcurrent()
    if isinstance(current, Stack):
        current.waits += 1
    return current.parent.switch(action)


class Stack(greenlet):  # type: ignore[misc]  # it has no types
    """A stack of its own.

    Attributes:
        waits: How often the code has waited for anything.
    """

    waits = 0


class Fiber:
    """Runs plain code on a host.

    Args:
        host: The host.
        body: The code.
        then: Called once it has ended.

    Attributes:
        ended: Whether it has.
    """

    def __init__(self, host: Host, body: Callable[[], Any], then: Then = lambda _: None) -> None:
        self.ended = self._begun = False
        self._host = host
        self._then = then
        self._greenlet = Stack(body, parent=host.scheduler.greenlet)
        self._go_on(None)

    def _go_on(self, reply: Any) -> None:
        """Goes on with a reply, or with the error that a server of production would raise."""
        thread, begun, self._begun = self._greenlet, self._begun, True
        try:
            if isinstance(reply, ENDS):
                action = thread.throw(reply)
            elif reply is FAILED or reply is TIMED_OUT or reply is UNKNOWN:
                action = thread.throw(DriverError(str(reply), retryable=True))
            elif reply is LOST:
                action = thread.throw(LeadershipLost(reply))
            else:
                action = thread.switch(reply) if begun else thread.switch()
        except ENDS as error:
            self._end(error)
            return
        if thread.dead:
            self._end(action)
        else:
            self._host.do(action, self._go_on)

    def _end(self, result: Any) -> None:
        self.ended = True
        self._then(result)


class Sleeper:
    """Lets a thread wait until it is woken, or its time is over."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._then: Then | None = None
        self._number = 0

    def sleep(self, seconds: float) -> None:
        """Waits."""
        if not self._host.runs:
            raise GreenletExit
        step(partial(self._begin, seconds))

    def wake(self) -> None:
        """Ends the wait, if there is one."""
        if self._then is not None:
            self._host.after(0.0, self._over, self._number)

    def _begin(self, seconds: float, then: Then) -> None:
        self._then = then
        self._number += 1
        if seconds < float("inf"):
            self._host.after(max(seconds, LEAST_WAIT), self._over, self._number)

    def _over(self, number: int) -> None:
        then = self._then
        if then is None or number != self._number:
            self._host.scheduler.steps -= 1  # something else woke it before
            return
        self._then = None
        then(None)


class Threads(lane.Threads):
    """What a lane runs on.

    Args:
        host: The host.
        released: Called whenever a thread releases a lock.
        pause: Returns how long the present thread pauses then.
    """

    def __init__(self, host: Host, released: Callable[[], None], pause: Callable[[], float]) -> None:
        self._host = host
        self._released = released
        self._pause = pause

    def clock(self) -> float:
        return self._host.clock()

    def sleep(self, seconds: float) -> None:
        Sleeper(self._host).sleep(seconds)

    def lock(self, conditions: int) -> tuple[Lock, list[Condition]]:
        lock = Lock(self._host, self._released, self._pause)
        return lock, [Condition(self._host, lock) for _ in range(conditions)]

    def spawn(self, run: Callable[[], None], name: str) -> lane.Join:
        return Thread(self._host, run).join


class Lock:
    """Is never waited for, as no thread is suspended that holds it."""

    def __init__(self, host: Host, released: Callable[[], None], pause: Callable[[], float]) -> None:
        self.held = False
        self._host = host
        self._released = released
        self._pause = pause
        self._taken: dict[Stack, tuple[int, int]] = {}

    def __enter__(self) -> None:
        assert not self.held
        self._look_for_spins()
        self.held = True

    def __exit__(self, kind: object, *_: object) -> None:
        self.held = False
        if kind is not None or not self._host.runs:
            return
        with self._host.scheduler.reporting():
            self._released()
        current = getcurrent()
        if isinstance(current, Stack) and (seconds := self._pause()):
            waits = current.waits
            Sleeper(self._host).sleep(seconds)
            current.waits = waits

    def _look_for_spins(self) -> None:
        current = getcurrent()
        if not isinstance(current, Stack):
            return
        waits, taken = self._taken.get(current, (0, 0))
        taken = taken + 1 if waits == current.waits else 0
        self._taken[current] = current.waits, taken
        if taken > MOST_AT_ONCE:
            with self._host.scheduler.reporting():
                raise Violation("I14", "a loop spins")


class Condition:
    """Lets a thread wait that holds the lock."""

    def __init__(self, host: Host, lock: Lock) -> None:
        self._lock = lock
        self._sleeper = Sleeper(host)

    def wait(self, timeout: float) -> None:
        assert self._lock.held
        self._lock.held = False
        try:
            self._sleeper.sleep(timeout)
        finally:
            self._lock.held = True

    def notify(self) -> None:
        assert self._lock.held
        self._sleeper.wake()


class Thread:
    """A thread that a lane has started."""

    def __init__(self, host: Host, run: Callable[[], None]) -> None:
        self._joining = Sleeper(host)
        self._fiber: Fiber | None = None
        self._host = host
        self._run = run
        host.after(0.0, self._start)

    def join(self, timeout: float) -> None:
        if self._fiber is None or not self._fiber.ended:
            self._joining.sleep(timeout)

    def _start(self) -> None:
        self._fiber = Fiber(self._host, self._run, lambda _: self._joining.wake())
