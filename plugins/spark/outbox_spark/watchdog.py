"""Looks whether a Spark application can still run lanes, and ends the JVM of one that cannot.

All outboxes of a process share an application. With the JVM gone, whoever waits for it is released, and each
user hears of it at its next check, leaders and standbys alike.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from threading import Event as Flag
from typing import NamedTuple

from outbox_api.support.context_thread import ContextThread, repeat
from py4j.protocol import Py4JError

log = logging.getLogger("outbox.spark")

LOOK_SECONDS = 2.0
MAX_LOOKS = 5
"""Looks in a row without an answer, or without a slot, after which the application is given up."""


class Answer(NamedTuple):
    """What an application says of itself."""

    stopped: bool
    slots: int


class Judge:
    """Decides from successive looks whether an application is to be given up; without I/O.

    It counts looks and not seconds: a process that was suspended has received no answers meanwhile.
    """

    def __init__(self) -> None:
        self._unanswered = self._without_slots = 0
        self._had_slots = False

    def look(self, answer: Answer | None) -> str:
        """Returns why the application is of no use any more, or an empty text; ``None`` is no answer."""
        if answer is None:
            self._unanswered += 1
            if self._unanswered < MAX_LOOKS:
                return ""
            return f"its JVM has not answered for {MAX_LOOKS * LOOK_SECONDS:.0f} s"
        self._unanswered = 0
        if answer.stopped:
            return "it has been stopped"
        # At its start a cluster has not offered any. Later an application without a single slot runs no lane:
        # its workers are gone, or its master has forgotten it, as one does that has started anew.
        self._had_slots = self._had_slots or answer.slots > 0
        self._without_slots = self._without_slots + 1 if self._had_slots and not answer.slots else 0
        if self._without_slots < MAX_LOOKS:
            return ""
        return f"it has had no task slot for {MAX_LOOKS * LOOK_SECONDS:.0f} s"


class Watchdog:
    """Watches an application from now on, until it is given up or :meth:`end`."""

    def __init__(self, ask: Callable[[], Answer], give_up: Callable[[str], None]) -> None:
        self._ask = ask
        self._give_up = give_up
        self._answer: Answer | None = None
        self._ended = Flag()
        for target in (self._listen, self._look):
            ContextThread(target=target, name=f"spark-watchdog{target.__name__}", daemon=True).start()

    def end(self) -> None:
        """Ends it. Idempotent."""
        self._ended.set()

    def _listen(self) -> None:
        """Asks again and again, on a thread of its own: an answer may never come."""
        repeat(self._ask_once, self._ended, LOOK_SECONDS / 2, log, "cannot ask Spark how it is")

    def _ask_once(self) -> None:
        with suppress(Py4JError, OSError):  # it has ended, or will not answer either
            self._answer = self._ask()

    def _look(self) -> None:
        judge = Judge()
        while not self._ended.wait(LOOK_SECONDS):
            answer, self._answer = self._answer, None
            if reason := judge.look(answer):
                self._ended.set()
                self._give_up(reason)
