"""Signals that have to wait until it is known what was started."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def uninterrupted(undo: Callable[[], None]) -> Iterator[None]:
    """Delays SIGINT and SIGTERM until the end of the block, and then calls ``undo`` before they are heeded.

    Without that, a process that has just been started could be left behind, and nobody would know of it.
    """
    heeded: list[int] = []
    former = {}
    if threading.current_thread() is threading.main_thread():  # no other one is interrupted
        for number in (signal.SIGINT, signal.SIGTERM):
            if callable(signal.getsignal(number)):
                former[number] = signal.signal(number, lambda number, _: heeded.append(number))
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
    if heeded:
        undo()
        signal.raise_signal(heeded[0])
