"""Tells other processes that this one is here and how many outboxes it leads, and learns that of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from threading import Event as Flag
from time import monotonic
from uuid import uuid4

from outbox_api import DriverError, OutboxError
from outbox_api.portable.outboxes import PortableMembers
from outbox_api.portable.view import PortableView
from outbox_api.support.context_thread import ContextThread, repeat

from outbox_core.settings import HarvestSettings, Settings
from outbox_core.status.outboxes import by_database

log = logging.getLogger(__name__)

NOTE_SECONDS = 2.0
"""Between two notes of one process."""
PRESENT_SECONDS = 3 * NOTE_SECONDS
"""For how long a process counts as present after its last note."""
REFUSED_SECONDS = 30.0
"""For how long an outbox is passed over beside which there can be no note, as its table is missing."""
STARTING = "starting "
"""How the group begins of the processes that start the engine for an outbox; its name follows."""
SLOW_SECONDS = 1.0
"""An engine that needs no longer is not noted, as one that is shared with other outboxes and is ready."""
_CLOSE_SECONDS = 1.0


class MembersThread:
    """Keeps this process's note up to date in one database, on a thread of its own, after ``after`` seconds.

    The note is beside the fence of the first outbox that can hold it. Which one that is depends on the
    database alone, so all processes find each other there.
    """

    def __init__(
        self, member: str, group: str, places: Sequence[HarvestSettings], *, after: float = 0.0
    ) -> None:
        self.leads = 0  # how many outboxes this process leads; written by the caller
        self.places = places  # as given; may be replaced by the caller
        self._member = member
        self._group = group
        self._after = after
        self._members: PortableMembers | None = None
        self._beside = ""
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
        """Removes the note, if the database answers at once. Idempotent."""
        self._stopping.set()
        self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        self._stopping.wait(self._after)
        repeat(self._note, self._stopping, NOTE_SECONDS, log, "cannot learn which processes there are")
        self._leave()

    def _note(self) -> None:
        """Notes this process beside the first outbox that does not refuse it."""
        for place in self.places:
            if monotonic() < self._refused_until.get(place.title, 0.0):
                continue
            try:
                members = self._open(place)
                counts = members.note(self._group, self._member, self.leads, PRESENT_SECONDS)
            except OutboxError as error:  # the harvests of this database report it
                log.debug("cannot learn which processes there are beside '%s': %s", place.title, error)
                self._close()
                if isinstance(error, DriverError) and error.retryable:
                    return  # the database is away, and so it is for the other outboxes
                self._refused_until[place.title] = monotonic() + REFUSED_SECONDS
            else:
                self._counts, self._counted_at = counts, monotonic()
                return

    def _open(self, place: HarvestSettings) -> PortableMembers:
        if self._members is None or self._beside != place.title:
            opened = place.dialect.create().members()
            self._leave()  # the place of before
            self._members, self._beside = opened, place.title
        return self._members

    def _leave(self) -> None:
        if self._members is not None:
            with suppress(DriverError):
                self._members.leave(self._member)
        self._close()

    def _close(self) -> None:
        if self._members is not None:
            self._members.close()
        self._members = None


@contextmanager
def noted_as_starting(outbox: str, settings: HarvestSettings) -> Iterator[None]:
    """Lets ``outbox status`` show that this process starts its engine, if that takes a while."""
    thread = MembersThread(member_name(settings.name), STARTING + outbox, [settings], after=SLOW_SECONDS)
    try:
        yield
    finally:
        thread.stop()


def starting(view: PortableView) -> Sequence[str]:
    """Returns the processes that start the engine for an outbox, by their names, sorted."""
    return sorted(member.rpartition(" ")[0] for member in view.members(STARTING + view.name, PRESENT_SECONDS))


def member_name(process: str) -> str:
    """Returns a name among the members that no other process has ever had."""
    return f"{process} {uuid4().hex}"


def group_of(settings: Settings) -> str:
    """Returns a name that processes share whose configurations have the same outboxes and templates."""
    outboxes = [(outbox.label, outbox.outbox) for outbox in settings.outboxes]
    templates = [(template.label, template.pattern) for template in settings.templates]
    return sha256(repr(sorted([*outboxes, *templates])).encode()).hexdigest()[:32]


def places_among(outboxes: Iterable[HarvestSettings]) -> dict[tuple[str, object], list[HarvestSettings]]:
    """Returns database → its outboxes, ordered by their titles."""
    return by_database(sorted(outboxes, key=lambda each: each.title))
