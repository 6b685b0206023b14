"""What browsers ask for again and again: how often they ask, and what is made once for all of them.

The more of them there are, the less often they ask, so that what they cost the harvest is bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from time import monotonic
from typing import NamedTuple, Self

from outbox_core.monitoring.polls import SHARED_SECONDS as POLL_SECONDS
from outbox_core.monitoring.polls import Poll, StatusPolls
from outbox_core.settings import HarvestSettings
from outbox_core.status.verdict import LastStatus
from outbox_core.text.duration import format_duration
from starlette.requests import Request
from starlette.responses import Response

PAUSE = "Outbox-Pause"
"""The header that says how many seconds later a browser asks again."""
SHORTEST = 2.0
"""Seconds after which a browser asks again where few look."""
LONGEST = 10.0
"""Seconds after which it asks again however many look."""
POLLS = 20.0
"""Answers a second to all browsers together, as long as ``LONGEST`` permits."""
LOOKS = 20.0
"""Outboxes a second that the page of all of them has looked at, as long as ``LONGEST`` permits."""

PATIENCE = 1.5
"""Seconds for which the page waits for a database before it shows the last known state."""
QUEUED_SECONDS = 30.0
"""For how long the last known state will do while others are polled; longer than between two polls."""
SHARED_SECONDS = 1.0
"""For how long what was made serves everybody who asks."""


def next_turn(now: float, last: float) -> float:
    """Returns when a browser is to ask again, in seconds on the clock of ``now``.

    Each that asks gets a turn of its own behind that of the one before. So those that would ask at the same
    moment spread, and nobody needs to be counted.
    """
    return min(max(now + SHORTEST, last + 1 / POLLS), now + LONGEST)


def overview_seconds(outboxes: int) -> float:
    """Returns for how many seconds the page of all outboxes serves everybody who asks."""
    return min(max(1.0, outboxes / LOOKS), LONGEST)


class Statuses:
    """Remembers the last known state of each outbox; used on the server's loop."""

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


class Fragment(NamedTuple):
    """That part of a page that changes."""

    text: str
    title: str  # the title of the page, which begins with the state
    body: bytes  # the same HTML, as it is sent
    tag: str  # its entity tag: the same as long as the text is
    seconds: float  # for how long it serves everybody who asks

    @classmethod
    def of(cls, text: str, title: str, seconds: float = SHARED_SECONDS) -> Self:
        """Makes one."""
        body = text.encode()
        return cls(text, title, body, f'"{blake2b(body, digest_size=12).hexdigest()}"', seconds)


class Turns:
    """Answers browsers that ask again and again, and tells each when to; used on the server's loop."""

    def __init__(self) -> None:
        self._last = 0.0

    def answer(self, request: Request, fragment: Fragment) -> Response:
        """Returns the part of a page that changes, if it has."""
        now = monotonic()
        self._last = next_turn(now, self._last)
        headers = {"ETag": fragment.tag, PAUSE: f"{self._last - now:.2f}"}
        # Within: a proxy that compresses answers makes the tag a weak one.
        if fragment.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(fragment.body, headers=headers, media_type="text/html")


class Shared:
    """Something that is made at most once in a while, however many ask; used on the server's loop."""

    def __init__(self, make: Callable[[], Awaitable[Fragment]]) -> None:
        self._make = make
        self._seconds = SHARED_SECONDS
        self._task: asyncio.Task[Fragment] | None = None
        self._begun = 0.0

    async def get(self, since: float = 0.0) -> Fragment:
        """Returns it, as it was made a short while ago or is made now."""
        over = monotonic() - self._begun >= self._seconds
        if self._task is None or (self._task.done() and over) or self._begun < since:
            self._begun = monotonic()
            self._task = asyncio.ensure_future(self._made())
        return await asyncio.shield(self._task)  # who leaves does not cancel it for the others

    async def _made(self) -> Fragment:
        self._seconds = SHARED_SECONDS
        made = await self._make()
        self._seconds = made.seconds
        return made
