"""Tells other processes that this one is here, and what it leads; learns that of them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from itertools import cycle, islice
from math import ceil
from threading import Event as Flag
from time import monotonic
from uuid import uuid4

from outbox_api import DriverError, OutboxError
from outbox_api.portable.outboxes import PortableMembers
from outbox_api.portable.table_idiom import TableName
from outbox_api.support.context_thread import ContextThread, repeat

from outbox_core.settings import HarvestSettings, Settings
from outbox_core.status.processes import SILENT_NOTES, tag
from outbox_core.text.redaction import redact

log = logging.getLogger("outbox.status")

NOTE_SECONDS = 2.0
"""Between two notes of a process that shares outboxes with others."""
PRESENT_SECONDS = SILENT_NOTES * NOTE_SECONDS
"""For how long such a process counts as present after its last note."""
SEEN_SECONDS = 10.0
"""Between two notes that only let people see a process; longer where there would be more than ``MOST``."""
MOST = 5.0
"""Such notes in a second."""
REFUSED_SECONDS = 30.0
"""For how long an outbox is passed over beside which there can be no note, as its table is missing."""
LONGEST_WHY = 500
"""Characters of why a process takes no part in an election."""
_CLOSE_SECONDS = 1.0
_EARLY_SECONDS = 0.5
"""By how much a note may be early, so that none waits for another step of the thread."""


class MembersThread:
    """Keeps this process's notes up to date in one database, on a thread of its own.

    There is one in each table of members, for the outboxes beside which it is. The first is written most
    often: by its notes processes share their outboxes. It is beside the fence of the first outbox that can
    hold it. Which one that is depends on the database alone, so all processes find each other there.

    Args:
        settings: Any outbox of the process, which names it and its engine.
        member: A name that no other process has ever had.
        places: The outboxes.
        group: Those who share outboxes; empty while this process takes none, and for one that shares none.
        ready: Returns whether the process takes part in an election.
        leads: Returns how many outboxes it leads.
        aside: Returns why it takes no part in an election for a while; empty if it does.
        seconds: Between two notes in the first table; ``None`` for ``NOTE_SECONDS``.
    """

    def __init__(
        self,
        settings: HarvestSettings,
        member: str,
        places: Sequence[HarvestSettings],
        *,
        group: str = "",
        ready: Callable[[], bool],
        leads: Callable[[], int],
        aside: Callable[[], str] = str,
        seconds: float | None = None,
    ) -> None:
        self.group = group  # as given; may be replaced by the caller
        self.places = places  # likewise
        self._about = {
            "process": settings.name,
            "version": version("outbox-harvester"),
            "engine": settings.engine.driver,
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        self._member = member
        self._ready = ready
        self.leads = leads
        self._aside = aside
        self._seconds = seconds or NOTE_SECONDS
        self._first: PortableMembers | None = None
        self._beside = ""
        self._others: dict[TableName, PortableMembers] = {}
        self._tags: dict[TableName, tuple[Sequence[HarvestSettings], Sequence[str]]] = {}
        self._turn = 0
        self._due, self._was_ready = 0.0, False
        self._refused_until: dict[str, float] = {}
        self._counts: Mapping[str, int] = {}
        self._counted_at = 0.0
        self._stopping = Flag()
        self._thread = ContextThread(target=self._run, name="members", daemon=True)
        self._thread.start()

    @property
    def counts(self) -> Mapping[str, int]:
        """Process → how many outboxes it leads; empty if the database has not answered lately."""
        return self._counts if monotonic() - self._counted_at < PRESENT_SECONDS else {}

    def stop(self) -> None:
        """Removes the notes, if the database answers at once. Idempotent."""
        self._stopping.set()
        self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        pause = min(self._seconds, NOTE_SECONDS)
        repeat(self._note_if_due, self._stopping, pause, log, "cannot learn which processes there are")
        self._leave()

    def _note_if_due(self) -> None:
        """Notes this process; also earlier if it has begun or ceased to take part in an election."""
        if monotonic() >= self._due or self._ready() != self._was_ready:
            self._due, self._was_ready = monotonic() + self._seconds - _EARLY_SECONDS, self._ready()
            self._note()

    def _note(self) -> None:
        tables: dict[TableName, list[HarvestSettings]] = {}
        for place in self.places:
            tables.setdefault(_table(place), []).append(place)
        self._tags = {table: each for table, each in self._tags.items() if table in tables}
        first = next((place for place in self.places if self._note_first(place, tables)), None)
        if first is None or self._first is None:
            return
        rest = [table for table in tables if table != _table(first)]
        every = max(SEEN_SECONDS, len(rest) / MOST, self._seconds)
        number = ceil(len(rest) * self._seconds / every)
        for table in islice(cycle(rest), self._turn, self._turn + number):
            self._note_other(self._first, table, tables[table], every)
        self._turn = (self._turn + number) % max(len(rest), 1)

    def _note_first(
        self, place: HarvestSettings, tables: Mapping[TableName, Sequence[HarvestSettings]]
    ) -> bool:
        """Notes this process beside an outbox, unless that refuses it; returns whether to try no other."""
        if monotonic() < self._refused_until.get(place.title, 0.0):
            return False
        try:
            members, table = self._open(place), _table(place)
            about = self._told(members, table, tables[table], self._seconds)
            counts = members.note(self.group, self._member, self.leads(), SILENT_NOTES * self._seconds, about)
        except OutboxError as error:  # the harvests of this database report it
            self._close()
            return self._refused(place, error)
        if self.group:
            self._counts, self._counted_at = counts, monotonic()
        return True

    def _note_other(
        self, first: PortableMembers, table: TableName, outboxes: Sequence[HarvestSettings], every: float
    ) -> None:
        if monotonic() < self._refused_until.get(outboxes[0].title, 0.0):
            return
        try:
            if table not in self._others:
                self._others[table] = first.beside(outboxes[0].dialect.create())
            members = self._others[table]
            about = self._told(members, table, outboxes, every)
            members.note("", self._member, self.leads(), SILENT_NOTES * every, about)
        except OutboxError as error:
            if self._refused(outboxes[0], error):
                self._close()

    def _told(
        self,
        members: PortableMembers,
        table: TableName,
        outboxes: Sequence[HarvestSettings],
        every: float,
    ) -> str:
        known = self._tags.get(table)
        if known is None or known[0] != outboxes:
            names = members.names(each.dialect.create() for each in outboxes)
            known = self._tags[table] = outboxes, sorted(map(tag, names))
        more = {"every": every, "ready": self._ready(), "outboxes": known[1]}
        if why := self._aside():
            more["aside"] = redact(why)[:LONGEST_WHY]
        return json.dumps({**self._about, **more})

    def _refused(self, place: HarvestSettings, error: OutboxError) -> bool:
        """Passes an outbox over for a while; returns ``True`` instead if the whole database is away."""
        log.debug("cannot note this process beside '%s': %s", place.title, error)
        if isinstance(error, DriverError) and error.retryable:
            return True
        self._refused_until[place.title] = monotonic() + REFUSED_SECONDS
        return False

    def _open(self, place: HarvestSettings) -> PortableMembers:
        if self._first is None or self._beside != place.title:
            opened = place.dialect.create().members()
            self._leave()  # the place of before
            self._first, self._beside = opened, place.title
        return self._first

    def _leave(self) -> None:
        for members in filter(None, (self._first, *self._others.values())):
            try:
                members.leave(self._member)
            except DriverError:
                break
        self._close()

    def _close(self) -> None:
        if self._first is not None:
            self._first.close()
        self._first, self._others = None, {}


def _table(place: HarvestSettings) -> TableName:
    table: TableName = place.dialect.options.tables.members
    return table


def member_name(process: str) -> str:
    """Returns a name among the members that no other process has ever had."""
    return f"{process} {uuid4().hex}"


def group_of(settings: Settings) -> str:
    """Returns a name that processes share whose configurations have the same outboxes and templates."""
    outboxes = [(outbox.label, outbox.outbox) for outbox in settings.outboxes]
    templates = [(template.label, template.pattern) for template in settings.templates]
    return sha256(repr(sorted([*outboxes, *templates])).encode()).hexdigest()[:32]
