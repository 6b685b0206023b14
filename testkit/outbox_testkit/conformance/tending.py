"""How what a leader tends is tended until nothing is left to do, by one or by several."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from threading import Thread

from outbox_api import DriverError
from outbox_api.seams.kept import Tended

Tend = Callable[[], Tended]


def tending(tend: Tend) -> Iterator[Tended]:
    """Does a work until nothing is left of it; somebody else who does it may undo a call."""
    while True:
        try:
            tended = tend()
        except DriverError as error:
            if not error.retryable:
                raise
            continue
        yield tended
        if not tended.more:
            return


def tending_at_once(works: Sequence[Tend]) -> list[Tended]:
    """Does a work over several connections at the same time; returns what came of all calls."""
    found = list[Tended]()
    threads = [Thread(target=lambda each=each: found.extend(tending(each))) for each in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found
