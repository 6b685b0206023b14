"""Records the histories of the outboxes of this process, and has their minutes kept by the databases."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Self

from outbox_api.support.context_thread import ContextThread
from outbox_core.monitoring.figures import RunningOutboxes
from outbox_core.monitoring.polls import Poll, StatusPolls
from outbox_core.status.history import History
from outbox_core.text.duration import format_duration

from outbox_console.minutes import MinuteWriter

log = logging.getLogger("outbox.console")

INTERVAL = 10.0
"""Seconds between two polls of an outbox."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """An outbox that is being polled, since ``at`` on the monotonic clock."""

    title: str
    at: float


class Recorder:
    """Polls every outbox again and again, and keeps a history of each; a context manager.

    One thread asks for polls and records them as they are made. It never waits for a database, so one that
    hangs delays no other, and no end. An outbox that appears gets a history, and one that vanishes loses it.
    """

    def __init__(self, observe: RunningOutboxes, polls: StatusPolls, interval: float = INTERVAL) -> None:
        self._observe = observe
        self._polls = polls
        self._interval = interval
        self._histories: dict[str, History] = {}
        self._asked: dict[str, _Asked] = {}
        self._made: SimpleQueue[tuple[_Asked, Poll] | None] = SimpleQueue()
        self._writer = MinuteWriter()
        self._thread = ContextThread(target=self._run, name="recorder", daemon=True)

    def history(self, title: str) -> History:
        """Returns the history of the outbox of that title, an empty one before its first poll.

        May be called on any thread.
        """
        return self._histories.get(title) or History(self._interval)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._made.put(None)
        self._thread.join()

    def _run(self) -> None:
        due = monotonic()
        while True:
            if (wait := due - monotonic()) <= 0:
                due = monotonic() + self._interval
                self._ask()
                continue
            try:
                made = self._made.get(timeout=wait)
            except Empty:
                continue
            if made is None:
                return
            self._record(*made)

    def _ask(self) -> None:
        """Asks for a poll of every outbox, but for those that are still being polled."""
        observed = {each.settings.title: each.settings for each in self._observe()}
        for title in self._histories.keys() - observed.keys():
            del self._histories[title]
            self._asked.pop(title, None)
        for title, settings in observed.items():
            history = self._histories.setdefault(title, History(self._interval))
            if (before := self._asked.get(title)) is not None:
                waited = format_duration(round(monotonic() - before.at, 1))
                history.failed(datetime.now(UTC), f"no answer for {waited}")
                continue
            self._asked[title] = asked = _Asked(title, monotonic())
            self._polls.ask(settings).add_done_callback(partial(self._done, asked))
        self._writer.write((settings, self._histories[title]) for title, settings in observed.items())

    def _done(self, asked: _Asked, future: Future[Poll]) -> None:
        """Hands a poll over to the recorder's thread; called on the thread that has polled."""
        self._made.put((asked, future.result()))

    def _record(self, asked: _Asked, poll: Poll) -> None:
        if self._asked.get(asked.title) is not asked:
            return  # the outbox has vanished meanwhile
        del self._asked[asked.title]
        history = self._histories[asked.title]
        at = datetime.now(UTC) - timedelta(seconds=monotonic() - poll.at)
        try:
            if poll.snapshot is None:
                history.failed(at, poll.error)
            else:
                history.add(at, poll.snapshot)
        except Exception:  # what a dialect of others returns must not end the histories of all outboxes
            log.exception("the poll of outbox '%s' cannot be recorded", asked.title)
