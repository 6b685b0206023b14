"""How browsers sign in with a token, how fast tokens can be tried, and how they sign out."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from time import monotonic
from urllib.parse import unquote, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from outbox_console.access import Access
from outbox_console.clients import digest
from outbox_console.page.rendering import Templates
from outbox_console.requests import RefusedError, form

FEW = 10
"""So many failures in :data:`WINDOW_SECONDS` have no consequence."""
WINDOW_SECONDS = 60.0
DELAY_SECONDS = 1.0
"""How long each wrong attempt takes after more."""
MOST_WAITING = 20
"""So many attempts wait at a time; others are refused."""

_WRONG = "Invalid token."
_ENDED = (
    "The session of this browser is not known to this harvester: it has ended, or it is one of another "
    "harvester. If you have signed in just now, a proxy has this browser talk to several harvesters in turn. "
    "It has to keep a browser at one of them."
)


class RateLimit:
    """Counts failures of all clients together: whoever guesses has many addresses."""

    def __init__(self) -> None:
        self._failed_at: deque[float] = deque(maxlen=FEW)
        self._waiting = 0

    def delay(self, now: float) -> float:
        """Returns how many seconds the next wrong attempt has to wait for its answer."""
        full = len(self._failed_at) == FEW
        return DELAY_SECONDS if full and now - self._failed_at[0] < WINDOW_SECONDS else 0.0

    def failed(self, now: float) -> None:
        """Counts a failure."""
        self._failed_at.append(now)

    def begin_waiting(self) -> bool:
        """Returns whether one more may wait; if so, it must end that."""
        if self._waiting >= MOST_WAITING:
            return False
        self._waiting += 1
        return True

    def end_waiting(self) -> None:
        """Makes room for another one."""
        self._waiting -= 1


class Login:
    """Begins and ends sessions.

    Args:
        access: Knows tokens and sessions.
        templates: Writes the page.
    """

    def __init__(self, access: Access, templates: Templates) -> None:
        self._access = access
        self._templates = templates
        self._attempts = RateLimit()

    def routes(self) -> list[Route]:
        """Returns what is served."""
        anybody = self._access.anybody
        return [
            Route("/login", anybody(self.ask)),
            Route("/login", anybody(self.sign_in), methods=["POST"]),
            Route("/logout", anybody(self.sign_out), methods=["POST"]),
        ]

    async def ask(self, request: Request) -> Response:
        """Asks for a token."""
        said = _ENDED if request.query_params.get("ended") == "1" else ""
        return self._form(request.query_params.get("next", ""), said=said)

    async def sign_in(self, request: Request) -> Response:
        """Begins a session."""
        self._access.require_own_post(request)
        fields = await form(request)
        then, token = (fields.get(name, [""])[0] for name in ("next", "token"))
        given = digest(token.strip())
        if self._access.tokens.bearer(given) is None:
            await self._wait()
            self._attempts.failed(monotonic())
            return self._form(then, wrong=_WRONG, code=403)
        cookie = self._access.cookie(request)
        self._access.sessions.end(self._access.session_id(request) or "")
        answer = RedirectResponse(local(then, self._access.prefix), 303)
        answer.set_cookie(
            cookie,
            self._access.sessions.begin(given),
            path=self._access.prefix or "/",
            secure=self._access.is_secure,
            httponly=True,
            samesite="strict",
        )
        return answer

    async def sign_out(self, request: Request) -> Response:
        """Ends the session."""
        self._access.require_own_post(request)
        cookie = self._access.cookie(request)
        self._access.sessions.end(self._access.session_id(request) or "")
        prefix = self._access.prefix
        answer = RedirectResponse(f"{prefix}/login", 303)
        answer.delete_cookie(
            cookie, path=prefix or "/", secure=self._access.is_secure, httponly=True, samesite="strict"
        )
        return answer

    def _form(self, then: str, *, said: str = "", wrong: str = "", code: int = 200) -> Response:
        values = {"then": local(then, self._access.prefix), "said": said, "error": wrong}
        return HTMLResponse(self._templates.page("login.html", None, values), code)

    async def _wait(self) -> None:
        """Slows down whoever guesses. A right token never waits: whoever guesses keeps nobody else out.

        Raises:
            RefusedError: Too many wait already.
        """
        if not self._attempts.delay(monotonic()):
            return
        if not self._attempts.begin_waiting():
            raise RefusedError(429, "too many wrong tokens: try again in a minute", {"Retry-After": "60"})
        try:
            await asyncio.sleep(DELAY_SECONDS)
        finally:
            self._attempts.end_waiting()


def local(then: str, prefix: str = "") -> str:
    """Returns where to go after signing in: ``then`` if it is a path of this server, else the start.

    Args:
        then: Where it is asked for to go.
        prefix: What all paths of this server begin with.
    """
    start = f"{prefix}/"
    if not re.fullmatch(r"/(?!/)[!-\[\]-~]*", then):  # ASCII without a backslash
        return start
    is_own = then.startswith(start) and ".." not in unquote(urlsplit(then).path).split("/")
    return then if is_own else start
