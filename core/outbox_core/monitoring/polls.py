"""Polls the databases of outboxes, which all share who ask at about the same time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Lock, Semaphore
from time import monotonic
from typing import Any
from weakref import WeakValueDictionary

from outbox_api import OutboxError
from outbox_api.support.context_thread import ContextThread

from outbox_core.settings import HarvestSettings
from outbox_core.status.outboxes import database_of
from outbox_core.status.snapshot import Snapshot, as_data

log = logging.getLogger("outbox.monitoring")

SHARED_SECONDS = 1.0
"""For how long a poll serves everybody who asks."""
REST_SECONDS = 30.0
"""For how long a connection is kept that nobody polls with; longer than between two scrapes."""
KNOWN_SECONDS = 10.0
"""For how long the last poll tells the state of an outbox."""
IDLE_SECONDS = 300.0
"""For how long a poll serves everybody who asks while the outbox rests."""
FORGET_SECONDS = 3600.0
"""For how long an outbox is remembered of which nobody asks: it may have been dropped."""
_DEFECT = "the poll has failed; the harvester's log says why"
_CONCURRENT = 8
"""How many polls of this process are in one database at the same time."""

Data = Mapping[str, Any]
"""The state of an outbox, as in ``outbox status --json``."""
View = Callable[[HarvestSettings], Snapshot]
"""Polls an outbox; raises an ``OutboxError`` if that fails."""
NewView = Callable[[], AbstractContextManager[View]]
"""Opens a view, which keeps a connection until it is left."""
IdleSince = Callable[[HarvestSettings], float | None]
"""Returns since when nothing has changed in an outbox that rests, on the monotonic clock; or ``None``."""


@dataclass(frozen=True, slots=True)
class Poll:
    """The result of a poll."""

    at: float  # when it was complete, on the monotonic clock
    snapshot: Snapshot | None  # the state of the outbox; None if the poll failed
    error: str = ""  # why it failed, free of secrets
    failing_since: float | None = None
    """Since when polls have failed, on the monotonic clock; ``None`` if it did not fail."""

    @property
    def data(self) -> Data | None:
        """The state as data; ``None`` if the poll failed."""
        return None if self.snapshot is None else as_data(self.snapshot)


class StatusPolls:
    """Polls outboxes; safe to use from any thread.

    Each outbox has a thread with a connection of its own while somebody asks, and one poll at a time is made
    of it. A database that hangs holds up no polls of outboxes elsewhere. While an outbox rests, it is polled
    every five minutes, and has no connection in between.
    """

    def __init__(self, new_view: NewView, idle_since: IdleSince = lambda _: None) -> None:
        self._new_view = new_view
        self._idle_since = idle_since
        self._lock = Lock()
        self._pollers: dict[str, _Poller] = {}
        self._places: WeakValueDictionary[tuple[str, object], Semaphore] = WeakValueDictionary()

    def ask(self, outbox: HarvestSettings) -> Future[Poll]:
        """Returns the poll of an outbox of the last second, or one that is being made. Returns at once.

        The future never fails, and may take as long as the database's driver is patient.
        """
        return self._poller(outbox).ask()

    def known(self, outbox: HarvestSettings) -> Poll | None:
        """Returns the last poll of an outbox; ``None`` if there was none for a while."""
        poll = self._poller(outbox).last
        return poll if poll is not None and monotonic() - poll.at < KNOWN_SECONDS else None

    def seen(self, outbox: HarvestSettings) -> Poll | None:
        """Returns the last poll that did not fail, however long ago; ``None`` if there was none."""
        return self._poller(outbox).seen

    def asking_since(self, outbox: HarvestSettings) -> float | None:
        """Returns since when a poll has waited for its database, by the monotonic clock; ``None``: none has.

        A poll that waits for its turn, as others are made, does not wait for its database.
        """
        return self._poller(outbox).asking_since

    def wait(self, outboxes: Sequence[HarvestSettings], seconds: float) -> None:
        """Has all outboxes polled, and waits for that so long at most."""
        deadline = monotonic() + seconds
        for future in [self.ask(outbox) for outbox in outboxes]:
            try:
                future.result(max(0.0, deadline - monotonic()))
            except TimeoutError:
                continue

    def _poller(self, outbox: HarvestSettings) -> _Poller:
        with self._lock:
            if outbox.title not in self._pollers:
                self._pollers = {
                    title: each for title, each in self._pollers.items() if not each.is_forgotten
                }
                places = self._places.setdefault(database_of(outbox), Semaphore(_CONCURRENT))
                self._pollers[outbox.title] = _Poller(outbox, self._new_view, self._idle_since, places)
            poller = self._pollers[outbox.title]
            poller.asked_at = monotonic()
            return poller


class _Poller:
    """Polls one outbox, on a thread that ends when nobody asks for a while."""

    def __init__(
        self, outbox: HarvestSettings, new_view: NewView, idle_since: IdleSince, places: Semaphore
    ) -> None:
        self.last: Poll | None = None
        self.seen: Poll | None = None
        self.asking_since: float | None = None
        self.asked_at = 0.0
        self._outbox = outbox
        self._new_view = new_view
        self._idle_since = idle_since
        self._seen_at = 0.0
        """When the last poll that did not fail began."""
        self._places = places
        self._lock = Lock()
        self._asked: SimpleQueue[Future[Poll]] = SimpleQueue()
        self._present: Future[Poll] | None = None
        self._running = False

    @property
    def is_forgotten(self) -> bool:
        return not self._running and monotonic() - self.asked_at > FORGET_SECONDS

    def ask(self) -> Future[Poll]:
        with self._lock:
            present = self._present
            if present is not None and not (present.done() and self._is_over(present.result())):
                return present
            self._present = future = Future[Poll]()
            future.set_running_or_notify_cancel()  # who stops waiting does not cancel it for the others
            if self.seen is not None and self._is_idle():
                self.last = Poll(monotonic(), self.seen.snapshot)
                future.set_result(self.last)
                return future
            self._asked.put(future)
            if not self._running:
                try:
                    ContextThread(target=self._run, name=f"poll-{self._outbox.title}", daemon=True).start()
                    self._running = True
                except RuntimeError as error:  # there can be no thread at present
                    self._give_up(error)
            return future

    @staticmethod
    def _is_over(poll: Poll) -> bool:
        return monotonic() - poll.at >= SHARED_SECONDS

    def _is_idle(self) -> bool:
        """Returns whether nothing has changed since it was polled, as it rests."""
        since = self._idle_since(self._outbox)
        return since is not None and since < self._seen_at and monotonic() - self._seen_at < IDLE_SECONDS

    def _run(self) -> None:
        try:
            with self._new_view() as view:
                while (future := self._next()) is not None:
                    began = monotonic()
                    self.last = poll = self._poll(view)
                    if poll.snapshot is not None:
                        self.seen, self._seen_at = poll, began
                    future.set_result(poll)
        except BaseException as error:  # noqa: BLE001 - or who asks would wait for ever
            with self._lock:
                self._running = False
                self._give_up(error)

    def _give_up(self, error: BaseException) -> None:
        """Has the poll fail that is asked for; the lock is held."""
        log.error("outbox '%s' cannot be polled", self._outbox.title, exc_info=error)
        self._asked = SimpleQueue()
        if self._present is not None and not self._present.done():
            self.last = self._failed(_DEFECT, monotonic())
            self._present.set_result(self.last)

    def _next(self) -> Future[Poll] | None:
        try:
            return self._asked.get(timeout=0.0 if self._is_idle() else REST_SECONDS)
        except Empty:
            with self._lock:  # or somebody could ask a thread that is about to end
                self._running = not self._asked.empty()
                return self._asked.get_nowait() if self._running else None

    def _failed(self, error: str, began: float) -> Poll:
        since = None if self.last is None else self.last.failing_since
        return Poll(monotonic(), None, error, began if since is None else since)

    def _poll(self, view: View) -> Poll:
        began = monotonic()
        try:
            with self._places:
                self.asking_since = monotonic()
                snapshot = view(self._outbox)
        except OutboxError as error:
            return self._failed(str(error), began)
        except Exception:
            log.exception("outbox '%s' cannot be polled", self._outbox.title)
            return self._failed(_DEFECT, began)
        finally:
            self.asking_since = None
        return Poll(monotonic(), snapshot)
