"""Tells other processes that this one is here and how many outboxes it leads, and learns that of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from threading import Event as Flag
from time import monotonic

from outbox_sdk import DriverError, OutboxError
from outbox_sdk.members import Members

from outbox_core.config.settings import HarvestSettings, Settings
from outbox_core.log_context import ContextThread

log = logging.getLogger(__name__)

NOTE_SECONDS = 2.0
"""Between two notes of one process."""
PRESENT_SECONDS = 3 * NOTE_SECONDS
"""For how long a process counts as present after its last note."""
_CLOSE_SECONDS = 1.0


class MembersThread:
    """Keeps this process's note up to date in one database, on a thread of its own.

    Args:
        member: The process's name among the members.
        group: The processes that are counted together.
        place: An outbox beside whose fence the notes are.

    Attributes:
        leads: How many outboxes this process leads; written by the caller.
    """

    def __init__(self, member: str, group: str, place: HarvestSettings) -> None:
        self.leads = 0
        self._member = member
        self._group = group
        self._place = place
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
        members: Members | None = None
        while not self._stopping.is_set():
            try:
                members = members or self._place.dialect.create().members()
                counts = members.note(self._group, self._member, self.leads, PRESENT_SECONDS)
                self._counts, self._counted_at = counts, monotonic()
            except OutboxError as error:  # the harvests of this database report it
                log.debug("cannot learn which processes there are: %s", error)
                if members is not None:
                    members.close()
                members = None
            self._stopping.wait(NOTE_SECONDS)
        if members is not None:
            with suppress(DriverError):
                members.leave(self._member)
            members.close()


def group_of(settings: Settings) -> str:
    """Returns a name that processes share whose configurations have the same outboxes and templates."""
    outboxes = [(outbox.label, outbox.outbox) for outbox in settings.outboxes]
    templates = [(template.label, template.pattern) for template in settings.templates]
    return sha256(repr(sorted([*outboxes, *templates])).encode()).hexdigest()[:32]


def places_among(outboxes: Iterable[HarvestSettings]) -> dict[str, HarvestSettings]:
    """Returns one outbox of each database, by its title: the first by name.

    Outboxes whose dialect keeps no members are left out.
    """
    places: dict[tuple[str, object], HarvestSettings] = {}
    for outbox in sorted(outboxes, key=lambda each: each.title):
        dialect = outbox.dialect
        database = (dialect.driver, getattr(dialect.options, "data_source", outbox.title))
        if database not in places and hasattr(dialect.create(), "members"):
            places[database] = outbox
    return {place.title: place for place in places.values()}
