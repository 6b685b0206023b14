"""What is known of outboxes whose databases are polled: also while they hang, or are away."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from time import monotonic

from outbox_core.monitoring.polls import SHARED_SECONDS as POLL_SECONDS
from outbox_core.monitoring.polls import Poll, StatusPolls
from outbox_core.settings import HarvestSettings
from outbox_core.status.verdict import LastStatus
from outbox_core.text.duration import format_duration

PATIENCE = 1.5
"""Seconds for which a database is waited for before the last known state is shown."""
QUEUED_SECONDS = 30.0
"""For how long the last known state will do while others are polled; longer than between two polls."""


class Statuses:
    """Remembers the last known state of each outbox; used on one loop."""

    def __init__(self, polls: StatusPolls) -> None:
        self._polls = polls
        self._late_since: dict[str, float] = {}
        self._away: dict[str, tuple[float, datetime]] = {}

    async def poll(self, outboxes: Sequence[HarvestSettings], since: float = 0.0) -> list[LastStatus]:
        """Returns what is known of outboxes now; waits for ``PATIENCE`` at most.

        No poll from before ``since``, on the monotonic clock, will do: something was changed then.
        """
        began = monotonic()
        asked = [asyncio.ensure_future(self._ask(outbox, since)) for outbox in outboxes]
        if asked:
            await asyncio.wait(asked, timeout=PATIENCE)
        for task in asked:
            task.cancel()  # a poll that is late goes on, and serves the next who asks
        return [
            self._known(outbox, None if task.cancelled() or not task.done() else task.result(), began)
            for outbox, task in zip(outboxes, asked, strict=True)
        ]

    async def _ask(self, outbox: HarvestSettings, since: float) -> Poll:
        poll = await asyncio.wrap_future(self._polls.ask(outbox))
        if poll.at < since:
            await asyncio.sleep(poll.at + POLL_SECONDS - monotonic())
            poll = await asyncio.wrap_future(self._polls.ask(outbox))
        return poll

    def _known(self, outbox: HarvestSettings, poll: Poll | None, began: float) -> LastStatus:
        """Returns what is known after a poll, which was asked for at ``began``; ``None`` if it is late."""
        seen = self._polls.seen(outbox)
        if poll is None and self._waits_for_others(outbox):
            last = self._polls.known(outbox)
            if last is not None and last.failing_since is not None:
                poll = last
            elif seen is None:
                return LastStatus()
            elif monotonic() - seen.at < QUEUED_SECONDS:
                return LastStatus(seen.snapshot, _wall(seen.at))
        if poll is None:
            failing_since: float | None = self._late_since.setdefault(outbox.title, began)
            error = f"no answer for {format_duration(PATIENCE)} and longer"
        else:
            self._late_since.pop(outbox.title, None)
            failing_since, error = poll.failing_since, poll.error
        away_since = self._away_since(outbox, failing_since)
        if seen is None:
            return LastStatus(None, None, error, away_since)
        return LastStatus(seen.snapshot, _wall(seen.at), error, away_since)

    def _waits_for_others(self, outbox: HarvestSettings) -> bool:
        """Returns whether a late poll says nothing of its database, as many others are polled before."""
        since = self._polls.asking_since(outbox)
        return since is None or monotonic() - since < PATIENCE / 2

    def _away_since(self, outbox: HarvestSettings, failing_since: float | None) -> datetime | None:
        """Returns an instant as time of day: always the same, or it would be read aloud again and again."""
        if failing_since is None:
            return None
        known = self._away.get(outbox.title)
        if known is None or known[0] != failing_since:
            known = self._away[outbox.title] = failing_since, _wall(failing_since)
        return known[1]


def _wall(at: float) -> datetime:
    """Returns the time of day of an instant on the monotonic clock."""
    return datetime.now(UTC) - timedelta(seconds=monotonic() - at)
