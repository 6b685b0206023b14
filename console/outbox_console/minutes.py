"""Writes the minutes of histories into the outboxes' databases, and reads them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Lock
from time import monotonic

from outbox_api.base.errors import DriverError, OutboxError
from outbox_api.portable.history import PortableHistory
from outbox_api.support.context_thread import ContextThread
from outbox_core.settings import HarvestSettings
from outbox_core.status.history import History
from outbox_core.status.minutes import Minute, Span, as_text, number_of, of_text
from outbox_core.status.outboxes import by_database, database_of

log = logging.getLogger("outbox.console")

MOST_READERS = 8
"""Outboxes whose minutes are in memory at the same time: a day of one may take some megabytes."""

REFUSED_SECONDS = 300.0
"""For how long an outbox is passed over whose database refuses to keep its minutes."""
AWAY_SECONDS = 2.0
"""For how long no minutes are read from a database that is away."""
LATE_MINUTES = 10
"""A minute that is written so much later than its next is still read."""
WRITTEN_SECONDS = 20
"""So long after its end a minute should be written; until then readers do without it."""


class MinuteWriter:
    """Writes the minutes that wait in histories; used by one thread, which never waits for a database."""

    def __init__(self) -> None:
        self._writing: dict[tuple[str, object], ContextThread] = {}
        self._refused_until: dict[str, float] = {}

    def write(self, outboxes: Iterable[tuple[HarvestSettings, History]]) -> None:
        """Has written what waits, on a thread for each database; leaves what is being written to it."""
        now = monotonic()
        waiting = {
            settings.title: (settings, history)
            for settings, history in outboxes
            if history.unwritten and now >= self._refused_until.get(settings.title, 0.0)
        }
        self._writing = {database: each for database, each in self._writing.items() if each.is_alive()}
        for database, some in by_database(settings for settings, _ in waiting.values()).items():
            if database not in self._writing:
                arguments = ([waiting[each.title] for each in some],)
                thread = ContextThread(target=self._run, args=arguments, name="minutes", daemon=True)
                with suppress(RuntimeError):  # the machine has no thread left: they wait for the next turn
                    thread.start()
                    self._writing[database] = thread

    def _run(self, outboxes: Sequence[tuple[HarvestSettings, History]]) -> None:
        connected: PortableHistory | None = None
        for settings, history in outboxes:
            try:
                dialect = settings.dialect.create()
                minutes = connected.beside(dialect) if connected else dialect.history()
                connected = connected or minutes
                while history.unwritten:
                    minute = history.unwritten[0]
                    minutes.note(minute.number, as_text(minute))
                    history.unwritten.popleft()
                history.error = ""
            except OutboxError as error:
                history.error = str(error)
                if isinstance(error, DriverError) and error.retryable:
                    break  # the database is away, also for the others
                log.debug("the history of outbox '%s' is not kept: %s", settings.title, error)
                self._pass_over(settings, history)
            except Exception:  # of a dialect of others; the histories of other outboxes are kept
                log.exception("the history of outbox '%s' is not kept", settings.title)
                history.error = "the harvester's log says why"
                self._pass_over(settings, history)
        if connected is not None:
            connected.close()

    def _pass_over(self, settings: HarvestSettings, history: History) -> None:
        self._refused_until[settings.title] = monotonic() + REFUSED_SECONDS
        history.unwritten.clear()


@dataclass(frozen=True, slots=True)
class KeptMinutes:
    """The minutes that a database has, as they were read."""

    minutes: Sequence[Minute] = ()  # in their order
    error: str = ""  # why they could not be read; empty if they could


class MinuteReader:
    """Reads the minutes of one outbox, each of them once; safe to use from any thread."""

    def __init__(self, settings: HarvestSettings) -> None:
        self._settings = settings
        self._lock = Lock()
        self._minutes: tuple[Minute, ...] = ()
        self._read_until = 0
        self._refused_until, self._error = 0.0, ""

    def read(self) -> KeptMinutes:
        """Returns the minutes of the last day; asks the database for those that are new."""
        with self._lock:
            now = datetime.now(UTC)
            over = number_of(now - timedelta(seconds=WRITTEN_SECONDS)) - 1
            if over != self._read_until and monotonic() >= self._refused_until:  # clocks are set back, too
                self._read(over, now)
            return KeptMinutes(self._minutes, self._error)

    def _read(self, over: int, now: datetime) -> None:
        first = number_of(now - Span.DAY.length)
        try:
            minutes = self._settings.dialect.create().history(read_only=True)
            try:
                last = min(self._minutes[-1].number, over) if self._minutes else 0
                rows = minutes.read(max(first, last - LATE_MINUTES))
            finally:
                minutes.close()
        except OutboxError as error:
            away = isinstance(error, DriverError) and error.retryable
            self._error = str(error)
            self._refused_until = monotonic() + (AWAY_SECONDS if away else WRITTEN_SECONDS)
            return
        # One from a clock that is ahead would hide what this process has seen meanwhile.
        new = [made for row in rows if (made := of_text(*row)) is not None]
        found = {each.number: each for each in (*self._minutes, *new) if first < each.number <= over + 1}
        self._minutes = tuple(found[number] for number in sorted(found))
        self._read_until, self._error = over, ""


class MinuteReaders:
    """The readers of this process's outboxes; safe to use from any thread."""

    def __init__(self) -> None:
        self._readers: dict[tuple[object, ...], MinuteReader] = {}
        self._lock = Lock()

    def read(self, settings: HarvestSettings) -> KeptMinutes:
        """Returns the minutes of an outbox; forgets those of the outbox that was asked for longest ago."""
        key = (*database_of(settings), settings.title)
        with self._lock:
            reader = self._readers.pop(key) if key in self._readers else MinuteReader(settings)
            self._readers[key] = reader
            if len(self._readers) > MOST_READERS:
                del self._readers[next(iter(self._readers))]
        return reader.read()
