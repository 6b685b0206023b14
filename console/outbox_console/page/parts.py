"""What all parts of the page work with: the outboxes, and what is read of each for all who look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic

from outbox_api.base.errors import OutboxError
from outbox_core import operations
from outbox_core.monitoring.figures import RunningOutboxes
from outbox_core.monitoring.statuses import Statuses
from outbox_core.settings import HarvestSettings
from starlette.requests import Request
from starlette.responses import HTMLResponse

from outbox_console.access import Access
from outbox_console.minutes import MOST_READERS, KeptMinutes, MinuteReaders
from outbox_console.page.dead_letters import Contents, KeptDays, SeenWaits, Shelf
from outbox_console.page.rendering import Templates
from outbox_console.replays import Replays
from outbox_console.requests import RefusedError
from outbox_console.work import Work

ENTRIES = 100
"""Entries of the journal that are read."""


class Outboxes:
    """The outboxes of this process; used on the server's loop."""

    def __init__(self, observe: RunningOutboxes, readers: MinuteReaders | None = None) -> None:
        self._observe = observe
        self._shelves: dict[str, Shelf[Contents]] = {}
        self._kept: dict[str, Shelf[KeptDays]] = {}
        self._minutes: dict[str, Shelf[KeptMinutes]] = {}
        self._readers = readers or MinuteReaders()
        self._waits: dict[str, Shelf[SeenWaits]] = {}
        self._changed: dict[str, float] = {}

    def all(self) -> list[HarvestSettings]:
        """Returns all of them."""
        return [each.settings for each in self._observe()]

    def named(self, title: str | None) -> HarvestSettings:
        """Returns the one of a title; without a title the only one."""
        found = self.all()
        if not title and len(found) == 1:
            return found[0]
        for each in found:
            if each.title == title:
                return each
        raise RefusedError(404, "there is no such outbox: this process does not harvest it, or not any more")

    def changed(self, outbox: HarvestSettings) -> None:
        """Notes that an operator has changed something: what was seen before is out of date."""
        self._changed[outbox.title] = monotonic()
        self.shelf(outbox).forget()
        self.kept(outbox).forget()
        self.waits(outbox).forget()

    def changed_at(self, outboxes: Sequence[HarvestSettings]) -> float:
        """Returns when an operator last changed something here, on the monotonic clock."""
        return max((self._changed.get(outbox.title, 0.0) for outbox in outboxes), default=0.0)

    def shelf(self, outbox: HarvestSettings) -> Shelf[Contents]:
        """Returns what holds an outbox's dead letters and its journal."""
        if outbox.title not in self._shelves:
            self._shelves[outbox.title] = Shelf(outbox.title, partial(_read, outbox), Contents())
        return self._shelves[outbox.title]

    def kept(self, outbox: HarvestSettings) -> Shelf[KeptDays]:
        """Returns what holds how much is kept of an outbox, by day."""
        if outbox.title not in self._kept:
            self._kept[outbox.title] = Shelf(outbox.title, partial(_read_kept, outbox), KeptDays())
        return self._kept[outbox.title]

    def minutes(self, outbox: HarvestSettings) -> Shelf[KeptMinutes]:
        """Returns what holds the minutes of an outbox's history."""
        if outbox.title not in self._minutes:
            if len(self._minutes) >= MOST_READERS:
                del self._minutes[next(iter(self._minutes))]
            read = partial(self._readers.read, outbox)
            self._minutes[outbox.title] = Shelf(outbox.title, read, KeptMinutes())
        return self._minutes[outbox.title]

    def waits(self, outbox: HarvestSettings) -> Shelf[SeenWaits]:
        """Returns what holds what waits in an outbox."""
        if outbox.title not in self._waits:
            self._waits[outbox.title] = Shelf(outbox.title, partial(_read_waits, outbox), SeenWaits())
        return self._waits[outbox.title]


def _read(outbox: HarvestSettings) -> Contents:
    letters = operations.letters(outbox)
    try:
        return Contents(letters, operations.entries(outbox, ENTRIES))
    except OutboxError as error:  # tables of an earlier version have no journal
        return Contents(letters, journal_error=str(error))


def _read_kept(outbox: HarvestSettings) -> KeptDays:
    return KeptDays(operations.kept_days(outbox))


def _read_waits(outbox: HarvestSettings) -> SeenWaits:
    return SeenWaits(operations.what_waits(outbox))


@dataclass(frozen=True, slots=True)
class Parts:
    """What all parts of the page work with."""

    outboxes: Outboxes
    watch: Statuses
    access: Access
    templates: Templates
    work: Work
    replays: Replays

    def page(self, request: Request, name: str, code: int = 200, **values: object) -> HTMLResponse:
        """Returns a whole page for whoever asks."""
        return HTMLResponse(self.templates.page(name, self.access.client(request), values), code)
