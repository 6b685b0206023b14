"""What browsers ask for again and again: how often they ask, and what is made once for all of them.

The more of them there are, the less often they ask, so that what they cost the harvest is bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from time import monotonic
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

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


class Lasting(Protocol):
    """Something that serves for a while."""

    @property
    def seconds(self) -> float:
        """For how long it serves everybody who asks."""


Made = TypeVar("Made", bound=Lasting)


class Shared(Generic[Made]):
    """Something that is made at most once in a while, however many ask; used on the server's loop."""

    def __init__(self, make: Callable[[], Awaitable[Made]]) -> None:
        self._make = make
        self._seconds = SHARED_SECONDS
        self._task: asyncio.Task[Made] | None = None
        self._begun = 0.0

    async def get(self, since: float = 0.0) -> Made:
        """Returns it, as it was made a short while ago or is made now."""
        over = monotonic() - self._begun >= self._seconds
        if self._task is None or (self._task.done() and over) or self._begun < since:
            self._begun = monotonic()
            self._task = asyncio.ensure_future(self._made())
        return await asyncio.shield(self._task)  # who leaves does not cancel it for the others

    async def _made(self) -> Made:
        self._seconds = SHARED_SECONDS
        made = await self._make()
        self._seconds = made.seconds
        return made
