"""Who may do what over HTTP.

A *viewer* may read, an *operator* also change something. A client says who it is by a token, or a proxy names
it. Where nothing of that is configured everybody is a viewer who can reach the server, which then listens on
loopback only
(:class:`outbox_core.settings.http.HttpSettings`).
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Coroutine
from typing import Any

from outbox_core.settings.http import HttpSettings
from starlette.requests import Request
from starlette.responses import Response

from outbox_console.clients import Client, Means, Role, Tokens, digest
from outbox_console.origins import is_own_host, is_same_origin
from outbox_console.proxies import TrustedProxy
from outbox_console.requests import RefusedError, wants_page

__all__ = ["Access", "Client", "Handler", "Means", "Role"]

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

_ONCE = ("authorization", "content-type", "host", "origin", "sec-fetch-site")
_IN_ADDRESSES = ("token", "access_token")
_READING = frozenset({"GET", "HEAD"})
_ASKS = 'Basic realm="outbox: a token as the password", charset="UTF-8"'
"""Has a browser ask for a name and a password."""


class Access:
    """Decides who a client is, and refuses what it may not do; used on the thread of the server.

    Handlers that it makes raise :class:`outbox_console.requests.RefusedError`, which
    :class:`outbox_console.page.refused.Refused` answers.
    """

    def __init__(self, settings: HttpSettings) -> None:
        self._tokens = Tokens(settings)
        self._settings = settings
        self._proxy = None if settings.proxy is None else TrustedProxy(settings.proxy, settings.origin)

    def client(self, request: Request) -> Client | None:
        """Returns who asks; ``None`` for somebody who may do nothing. Never raises."""
        if hasattr(request.state, "client"):
            found: Client | None = request.state.client  # as it was let in
            return found
        try:
            return self._identified(request)
        except RefusedError:
            return None

    def name(self, request: Request) -> str:
        """Returns the name of who asks; empty if they have none. Never raises."""
        client = self.client(request)
        return client.name if client else ""

    def viewer(self, handler: Handler) -> Handler:
        """Makes a handler that serves viewers, and so operators, too. It must not change anything."""
        return self._serving(Role.VIEWER, handler)

    def operator_reads(self, handler: Handler) -> Handler:
        """Makes a handler that serves operators only, and must not change anything either."""
        return self._serving(Role.OPERATOR, handler)

    def operator(self, handler: Handler) -> Handler:
        """Makes a handler that changes something: by POST, for operators, and for no page of another site."""

        async def serve(request: Request) -> Response:
            self.require_own_post(request)
            return await handler(request)

        return self._serving(Role.OPERATOR, serve)

    def require_own_post(self, request: Request) -> None:
        """Makes sure that a request is a POST, and that no page of another site has a browser make it."""
        if request.method != "POST":
            raise RefusedError(405, "this changes something: ask by POST", {"Allow": "POST"})
        client = self.client(request)
        if client is not None and client.means is Means.BEARER:
            return
        if not is_same_origin(request.headers, self._settings.origin):
            raise RefusedError(
                403,
                "a page of another site may have made this request, so nothing was done: use the page of "
                "this server, or a token in the header Authorization; behind a proxy set http.origin",
            )

    @property
    def prefix(self) -> str:
        """What the paths of all addresses begin with; empty if nothing."""
        return self._settings.prefix

    def _serving(self, role: Role, handler: Handler) -> Handler:
        async def serve(request: Request) -> Response:
            client = self._identified(request)
            self._require(role, client, request)
            request.state.client = client
            return await handler(request)

        return serve

    def _identified(self, request: Request) -> Client | None:
        """Returns who asks; ``None`` for somebody who does not say."""
        self._require_sound(request)
        if self._settings.is_open:
            # A page of another site can have a browser here ask this server by a name of that site's own.
            if not is_own_host(request.headers.get("host", ""), None):
                raise RefusedError(403, "ask by a name or address of loopback, such as 127.0.0.1")
            return Client("", Role.VIEWER, Means.NONE)
        named = None if self._proxy is None else self._proxy.client(request)
        return named or self._with_token(request)

    def _require_sound(self, request: Request) -> None:
        for name in (*_ONCE, *(() if self._proxy is None else self._proxy.headers)):
            if len(request.headers.getlist(name)) > 1:
                raise RefusedError(400, f"the header {name} is there twice")
        if any(name in request.query_params for name in _IN_ADDRESSES):
            raise RefusedError(
                400,
                "a token has no place in an address, which logs and histories keep: replace it by a new one, "
                "and send that in the header Authorization",
            )

    def _with_token(self, request: Request) -> Client | None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() not in {"basic", "bearer"}:
            return None
        means = Means.BEARER if scheme.lower() == "bearer" else Means.BASIC
        token = given if means is Means.BEARER else _password(given)
        bearer = self._tokens.bearer(digest(token.strip()))
        if bearer is None:
            raise self._unknown(request, "invalid token")
        return Client(bearer.name, bearer.role, means)

    def _require(self, role: Role, client: Client | None, request: Request) -> None:
        if client is None:
            raise self._unknown(request)
        if client.role >= role:
            return
        if not self._settings.has_operators:
            raise RefusedError(
                403,
                "nobody may change anything here: configure http.operatorTokens or http.proxy with operators",
            )
        raise RefusedError(403, f"{client.name or 'this client'} may only read: an operator may do this")

    def _unknown(self, request: Request, doubt: str = "") -> RefusedError:
        silence = ""
        if self._proxy is not None:
            doubt, silence = self._proxy.doubt(request) or doubt, self._proxy.silence(request)
        is_person = wants_page(request)
        page = "sign in with a token as the password, under any name"
        here = page if is_person else "send a token: Authorization: Bearer TOKEN"
        takes_tokens = bool(self._settings.viewer_tokens or self._settings.operator_tokens)
        ways = [here] if takes_tokens else []
        ways += [f"sign in at {self._settings.start}"] if self._proxy is not None else []
        nothing = "" if request.method in _READING else "nothing was done: "
        sentence = "; ".join(filter(None, (doubt or silence, " or ".join(ways))))
        challenge = _ASKS if is_person and takes_tokens else "Bearer"
        return RefusedError(401, nothing + sentence, {"WWW-Authenticate": challenge})


def _password(given: str) -> str:
    """Returns the password of a browser's ``Authorization``; empty if there is none."""
    try:
        return b64decode(given, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""
