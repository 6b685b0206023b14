"""What browsers ask for again and again: it is made once a second, and shared by all who ask."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import NamedTuple

from outbox_core.config.duration import format_duration
from outbox_core.config.settings import HarvestSettings
from outbox_core.http.view_verdict import Known
from outbox_core.monitoring.looks import SHARED_SECONDS as LOOK_SECONDS
from outbox_core.monitoring.looks import Look, Looks

PATIENCE = 1.5
"""Seconds for which the page waits for a database before it shows the last known state."""
SHARED_SECONDS = 1.0
"""For how long what was made serves everybody who asks."""


class Watch:
    """Remembers the last known state of each outbox; used on the server's loop.

    Args:
        looks: Looks at their databases.
    """

    def __init__(self, looks: Looks) -> None:
        self._looks = looks
        self._known: dict[str, Known] = {}

    async def look(self, outboxes: Sequence[HarvestSettings], since: float = 0.0) -> list[Known]:
        """Returns what is known of outboxes now; waits for ``PATIENCE`` at most.

        Args:
            outboxes: The outboxes.
            since: No earlier look will do, on the monotonic clock, as something was changed then.
        """
        began = datetime.now(UTC)
        asked = [asyncio.ensure_future(self._ask(outbox, since)) for outbox in outboxes]
        if asked:
            await asyncio.wait(asked, timeout=PATIENCE)
        for outbox, task in zip(outboxes, asked, strict=True):
            before = self._known.get(outbox.title, Known())
            look = task.result() if task.done() else None
            self._known[outbox.title] = _after(before, look, began)
            task.cancel()  # a look that is late goes on, and serves the next who asks
        return [self._known[outbox.title] for outbox in outboxes]

    async def _ask(self, outbox: HarvestSettings, since: float) -> Look:
        look = await asyncio.wrap_future(self._looks.ask(outbox))
        if look.at < since:
            await asyncio.sleep(look.at + LOOK_SECONDS - monotonic())
            look = await asyncio.wrap_future(self._looks.ask(outbox))
        return look


def _after(before: Known, look: Look | None, began: datetime) -> Known:
    """Returns what is known after a look, which was asked for at ``began``; ``None`` if it is late."""
    if look is not None and look.snapshot is not None:
        made = datetime.now(UTC) - timedelta(seconds=monotonic() - look.at)
        return Known(look.snapshot, made)
    error = look.error if look is not None else f"no answer for {format_duration(PATIENCE)} and longer"
    return replace(before, error=error, away_since=before.away_since or began)


class Fragment(NamedTuple):
    """That part of a page that changes.

    Attributes:
        text: The HTML.
        title: The title of the page, which begins with the state.
    """

    text: str
    title: str


class Shared:
    """Something that is made at most once a second, however many ask; used on the server's loop.

    Args:
        make: Makes it.
    """

    def __init__(self, make: Callable[[], Awaitable[Fragment]]) -> None:
        self._make = make
        self._task: asyncio.Task[Fragment] | None = None
        self._begun = 0.0

    async def get(self, since: float = 0.0) -> Fragment:
        """Returns it, from the last second or made now.

        Args:
            since: What was begun earlier will not do, on the monotonic clock, as something was changed then.
        """
        over = monotonic() - self._begun >= SHARED_SECONDS
        if self._task is None or (self._task.done() and over) or self._begun < since:
            self._begun = monotonic()
            self._task = asyncio.ensure_future(self._make())
        return await asyncio.shield(self._task)  # who leaves does not cancel it for the others
