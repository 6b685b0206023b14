"""What the page shows of an outbox beside its state, read for all who look."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from threading import BoundedSemaphore
from time import monotonic
from typing import Generic, TypeVar

from outbox_api.base.errors import OutboxError
from outbox_api.seams.journal import Entry
from outbox_api.seams.kept import Kept
from outbox_api.seams.parking import DeadLetter
from outbox_api.support.context_thread import ContextThread
from outbox_core.operations import WhatWaits

from outbox_console.minutes import KeptMinutes

log = logging.getLogger("outbox.console")

READ_SECONDS = 2.0
"""How often it is read at most, while somebody looks."""
PATIENCE = 1.0
"""Seconds for which the page waits for the first reading, and for the first after a change."""
REST = 10
"""Times the duration of a reading after which there may be the next, as there may be very many records."""
LONGEST_REST = 30.0
"""Seconds after which there may be the next in any case."""
UNWATCHED_SECONDS = 5.0
"""If nobody has asked for so long, the next who does waits for a reading: what is known is old."""
_CONCURRENT = BoundedSemaphore(8)
"""How many readings of this process are in databases at the same time."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What was read."""

    letters: Sequence[DeadLetter] | None = None
    """Dead letters without values, ordered by id; ``None`` if they were never read."""
    entries: Sequence[Entry] | None = None
    """The last entries of the journal, the newest first; ``None`` if they could not be read."""
    error: str = ""  # why the last reading failed; empty if it did not
    journal_error: str = ""  # why the journal could not be read; empty if it could


@dataclass(frozen=True, slots=True)
class KeptDays:
    """How much is kept, as it was read."""

    days: Sequence[tuple[date, Kept]] | None = None  # ``None`` if it was never read
    error: str = ""  # why the last reading failed; empty if it did not


@dataclass(frozen=True, slots=True)
class SeenWaits:
    """What waits, as it was read."""

    waits: WhatWaits | None = None  # ``None`` if it was never read
    error: str = ""  # why the last reading failed; empty if it did not


Read = TypeVar("Read", Contents, KeptDays, KeptMinutes, SeenWaits)


class Shelf(Generic[Read]):
    """What is read of one outbox, while somebody looks; used on the server's loop."""

    def __init__(self, title: str, read: Callable[[], Read], empty: Read) -> None:
        self._title = title
        self._read: Callable[[], Read] = read
        self._contents: Read = empty
        self._reading: asyncio.Future[None] | None = None
        self._due = 0.0
        self._changes = 0
        self._is_awaited = True
        self._asked_at = monotonic()

    async def get(self) -> Read:
        """Returns what is known, and has it read anew if that is due.

        Waits only where nothing is known, or something was changed, or nobody has asked for a while.
        """
        now = monotonic()
        unwatched, self._asked_at = now - self._asked_at >= UNWATCHED_SECONDS, now
        due = (self._reading is None or self._reading.done()) and now >= self._due
        if due and _CONCURRENT.acquire(blocking=False):
            self._is_awaited |= unwatched
            self._start()
        if self._reading is not None and self._is_awaited:
            await asyncio.wait([self._reading], timeout=PATIENCE)
        return self._contents

    def forget(self) -> None:
        """Has the next who asks wait for a new reading, as something was changed."""
        self._reading, self._due, self._is_awaited = None, 0.0, True
        self._changes += 1

    def _start(self) -> None:
        self._due = monotonic() + READ_SECONDS
        self._reading = asyncio.get_running_loop().create_future()
        arguments = (self._reading, self._changes)
        thread = ContextThread(target=self._run, args=arguments, name=f"read-{self._title}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the machine has no thread left
            _CONCURRENT.release()
            self._reading = None
            self._contents = replace(self._contents, error=str(error))

    def _run(self, reading: asyncio.Future[None], changes: int) -> None:
        began = monotonic()
        try:
            contents = self._read()
        except OutboxError as error:
            contents = replace(self._contents, error=str(error))
        except Exception:
            log.exception("what the page shows of outbox '%s' cannot be read", self._title)
            contents = replace(self._contents, error="this cannot be read; the harvester's log says why")
        finally:
            _CONCURRENT.release()
        rest = min(REST * (monotonic() - began), LONGEST_REST)

        def keep() -> None:
            if changes == self._changes:  # or it may have been read before that change
                self._contents, self._is_awaited = contents, False
                self._due = max(self._due, monotonic() + rest)
            if not reading.done():
                reading.set_result(None)

        try:
            reading.get_loop().call_soon_threadsafe(keep)
        except RuntimeError:
            return  # the server has ended meanwhile
