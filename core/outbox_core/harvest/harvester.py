"""One process that harvests several outboxes: a harvest for each, and a fair share of their leaderships.

Each outbox has an election, a fence and lanes of its own. One that cannot be harvested, as its database is
away or its table missing, is told in the log and tried again; the others do not notice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event as Flag
from threading import Lock
from time import monotonic

from outbox_api import OutboxError
from outbox_api.support.context_thread import ContextThread, repeat

from outbox_core.engines.runner import SharedEngine
from outbox_core.events import Event
from outbox_core.harvest.harvest_thread import HarvestThread
from outbox_core.harvest.rebalance import Rebalance
from outbox_core.harvest.resting import RestThread, may_rest
from outbox_core.settings import HarvestSettings, Settings, Template
from outbox_core.status.members import NOTE_SECONDS, MembersThread, group_of, member_name
from outbox_core.status.outboxes import by_database, database_of, matching, unknown

log = logging.getLogger("outbox.harvest")

STAGGER_SECONDS = 0.02
"""Between the starts of two outboxes, so that many do not connect at the same moment."""
LOOK_SECONDS = 10.0
"""How often templates are compared with the tables that there are."""
_END_SECONDS = 1.0
_NOT_ELECTED = "static"
"""The elector of an outbox that no other process takes over, so it is neither handed over nor counted."""
SPARE_SLOTS = 100
"""Task slots of an embedded Spark for outboxes of templates, which may appear later."""

Handler = Callable[[HarvestSettings, Event], None]


class Harvester:
    """Harvests several outboxes. Start it and stop it, each once.

    Args:
        settings: The outboxes and templates.
        handler: Called with the outbox's settings for each event; for one outbox one at a time. See
            :meth:`outbox_core.harvest.Harvest.set_event_handler`.
    """

    def __init__(self, settings: Settings, handler: Handler) -> None:
        self._settings = settings
        self._handler = handler
        self._engine = SharedEngine(
            settings.process, settings.outboxes, SPARE_SLOTS if settings.templates else 1
        )
        self._threads: dict[str, HarvestThread] = {}
        self._ending: dict[str, HarvestThread] = {}
        """Outboxes whose tables are gone, until they have ended."""
        self._gone: dict[str, set[str]] = {}
        """Template → its outboxes that the last search has not found."""
        self._members: dict[tuple[str, object], MembersThread] = {}
        self._rest_threads: dict[tuple[str, object], RestThread] = {}
        self._leads = 0
        """How many outboxes it leads that others could."""
        self._present: set[str] = set()
        """The members that were there at the last look."""
        self._group = group_of(settings)
        # Processes may share a configuration that sets harvest.name.
        self._member = member_name(settings.process.name)
        self._stopping = Flag()
        self._changing = Lock()
        """Held while outboxes and members are added, none of which is after :meth:`stop`."""
        self._thread = ContextThread(target=self._run, name="harvester", daemon=True)
        self._search_thread = ContextThread(target=self._search, name="templates", daemon=True)

    @property
    def harvests(self) -> Sequence[HarvestThread]:
        """The harvest of each outbox that is known now; of templates there may be more later."""
        return list(self._threads.values())

    def idle_since(self, outbox: HarvestSettings) -> float | None:
        """Returns since when an outbox has rested; see :attr:`HarvestThread.idle_since`."""
        thread = self._threads.get(outbox.title)
        return None if thread is None else thread.idle_since

    def start(self) -> None:
        """Starts every outbox, without waiting for any."""
        self._add(self._settings.outboxes)
        self._thread.start()
        if self._settings.templates:
            self._search_thread.start()

    def stop(self) -> None:
        """Hands all leaderships over at the same time, and frees everything. Idempotent.

        A search for the tables of a template in a database that hangs is not waited for.
        """
        with self._changing:
            self._stopping.set()
        harvests = [*self._threads.values(), *self._ending.values()]
        ending: list[HarvestThread | MembersThread | RestThread] = [*self._rest_threads.values(), *harvests]
        ending += self._members.values()
        with ThreadPoolExecutor(max(1, len(ending)), "stop") as pool:
            list(pool.map(lambda each: each.stop(), ending))
        if self._thread.ident is not None:
            self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        spread = Rebalance(self._member)

        def keep() -> None:
            self._spread(spread)
            self._keep_awake()
            self._keep_rest_threads()
            self._keep_members()

        repeat(keep, self._stopping, NOTE_SECONDS, log, "cannot care for all outboxes")

    def _search(self) -> None:
        complaint = "cannot look for outboxes of templates"
        repeat(self._look_for_outboxes, self._stopping, LOOK_SECONDS, log, complaint)

    def _keep_awake(self) -> None:
        for thread in self.harvests:
            if not thread.may_rest:
                thread.wake()

    def _add(self, outboxes: Iterable[HarvestSettings]) -> None:
        present = self._threads.keys() | self._ending.keys()
        added = [outbox for outbox in outboxes if outbox.title not in present]
        with self._changing:
            if self._stopping.is_set():
                return
            for number, outbox in enumerate(added):
                self._threads[outbox.title] = HarvestThread(
                    outbox,
                    self._engine,
                    partial(self._handler, outbox),
                    None if may_rest(outbox) else number * STAGGER_SECONDS,
                    self._member,
                )

    def _look_for_outboxes(self) -> None:
        for template in self._settings.templates:
            known = [thread.settings for thread in self.harvests]
            try:
                found = matching(template)
            except OutboxError as error:
                log.warning("cannot look for outboxes of '%s', trying again: %s", template.label, error)
                continue
            others = [each for each in known if not _is_of(template, each)]
            found = unknown(found, others)
            self._drop({each.title for each in known if _is_of(template, each)}, found, template)
            self._add(found)
            if not found:
                log.warning("no table matches '%s' yet", template.pattern)

    def _drop(self, known: set[str], found: Iterable[HarvestSettings], template: Template) -> None:
        """Ends the outboxes that two searches in a row have not found; one may come in between a renaming."""
        gone = known - {outbox.title for outbox in found}
        dropped = gone & self._gone.get(template.label, set())
        self._gone[template.label] = gone - dropped
        with self._changing:
            if self._stopping.is_set():
                return
            for title in sorted(dropped):
                # On a thread of its own, as it may wait for lanes.
                ContextThread(target=self._end, args=(title,), name=f"end-{title}", daemon=True).start()
                self._ending[title] = self._threads.pop(title)
                text = "outbox '%s' is not harvested any more, as its table is gone, or hidden from this user"
                log.warning(text, title)

    def _end(self, title: str) -> None:
        with self._changing:
            thread = self._ending[title]
        try:
            thread.stop()
        finally:
            del self._ending[title]

    def _keep_members(self) -> None:
        """Has notes in each database.

        A process that cannot lead yet is of no group, as others would hand over to nobody: Spark may take a
        minute to start.
        """
        harvested = (thread.settings for thread in self.harvests)
        places = by_database(sorted(harvested, key=lambda each: each.title))
        group = self._group if self._is_ready() else ""
        with self._changing:
            if self._stopping.is_set():
                return
            for database in set(self._members) - set(places):
                self._members.pop(database).stop()
            for database, outboxes in places.items():
                if database not in self._members:
                    self._members[database] = MembersThread(
                        outboxes[0], self._member, outboxes, ready=self._is_ready, leads=lambda: self._leads
                    )
                members = self._members[database]
                members.places, members.group = outboxes, group

    def _is_ready(self) -> bool:
        return any(thread.joined for thread in self.harvests)

    def _keep_rest_threads(self) -> None:
        """Has somebody in each database who wakes the outboxes that rest."""
        resting: dict[tuple[str, object], list[HarvestThread]] = {}
        for thread in self.harvests:
            if thread.may_rest:
                resting.setdefault(database_of(thread.settings), []).append(thread)
        with self._changing:
            if self._stopping.is_set():
                return
            for database in set(self._rest_threads) - set(resting):
                self._rest_threads.pop(database).stop()
            for database, threads in resting.items():
                if database in self._rest_threads:
                    self._rest_threads[database].threads = threads
                else:
                    self._rest_threads[database] = RestThread(threads)

    def _spread(self, spread: Rebalance) -> None:
        led = [
            thread
            for thread in self.harvests
            if thread.leads and not thread.rests and thread.settings.elector.driver != _NOT_ELECTED
        ]
        counts: dict[str, int] = {}
        self._leads = len(led)
        for members in self._members.values():
            counts |= members.counts
        if counts and self._present - counts.keys():  # what they led is led by nobody
            for resting in self._rest_threads.values():
                resting.begin_anew()
        self._present = set(counts) or self._present
        by_title = {thread.settings.title: thread for thread in led}
        for title in spread.to_give_up(list(by_title), counts, monotonic()):
            log.info("outbox '%s' is handed over, as other processes lead fewer", title)
            by_title[title].give_up()


def _is_of(template: Template, outbox: HarvestSettings) -> bool:
    return outbox.label.startswith(f"{template.label}/")
