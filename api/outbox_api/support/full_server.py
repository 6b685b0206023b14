"""Slows down whoever connects to a server that has no connection left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import uniform
from threading import Lock
from time import monotonic

from outbox_api.base.errors import ServerFull

FIRST_PAUSE_SECONDS = 1.0
"""The mean pause after the server was full once; twice as long after each further time."""
LONGEST_PAUSE_SECONDS = 30.0
_OVERDUE_SECONDS = 30.0
"""An attempt to connect that takes longer than that does not keep others from theirs."""


class Pace:
    """When this process connects to one server.

    As long as the server has room, at any time. Once it is full, all wait for a pause that grows and varies
    at random, so that several processes do not ask at the same moment. After the pause one attempt is made
    at a time; each that succeeds halves the pause, until there is none.

    Safe to use from any thread.

    Args:
        server: The server in words, without secrets.
        clock: Returns seconds on a clock that never goes back.
        vary: Returns a random number between two.
    """

    def __init__(
        self,
        server: str,
        clock: Callable[[], float] = monotonic,
        vary: Callable[[float, float], float] = uniform,
    ) -> None:
        self._server = server
        self._clock = clock
        self._vary = vary
        self._lock = Lock()
        self._pause = 0.0
        self._next = 0.0

    @contextmanager
    def connecting(self) -> Iterator[None]:
        """Connects within, or is refused at once.

        Raises:
            ServerFull: The server is full, or was so lately.
        """
        alone = self._enter()
        try:
            yield
        except ServerFull:
            self._full(alone=alone)
            raise
        except BaseException:
            self._change(self._pause)
            raise
        self._change(self._pause / 2)

    def _enter(self) -> bool:
        """Returns whether this is the one attempt after a pause."""
        with self._lock:
            if not self._pause:
                return False
            now = self._clock()
            if now < self._next:
                raise ServerFull(
                    f"{self._server} had no connection left; this process tries again in "
                    f"{self._next - now:.1f} s"
                )
            self._next = now + _OVERDUE_SECONDS  # the others wait for what becomes of this attempt
            return True

    def _full(self, *, alone: bool) -> None:
        with self._lock:
            if self._pause and not alone:
                return  # it began before the pause, which another that found the server full has caused
            self._pause = min(2 * self._pause or FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
            self._next = self._clock() + self._vary(0.5, 1.5) * self._pause

    def _change(self, pause: float) -> None:
        with self._lock:
            if self._pause:
                self._pause = pause if pause >= FIRST_PAUSE_SECONDS / 2 else 0.0
                self._next = self._clock()


_PACES: dict[str, Pace] = {}
_PACES_LOCK = Lock()


def pace_of(server: str) -> Pace:
    """Returns the pace of this process for a server, named in words, without secrets."""
    with _PACES_LOCK:
        return _PACES.setdefault(server, Pace(server))
