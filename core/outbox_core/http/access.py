"""Who may do what over HTTP.

There is one role yet: a *viewer* may read. Without tokens everybody is one who can reach the server, which
then listens on loopback only (:class:`outbox_core.config.http.HttpSettings`).
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from enum import StrEnum

from outbox_sdk.hosts import is_local
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from outbox_core.config.http import HttpSettings

Handler = Callable[[Request], Awaitable[Response]]


class Role(StrEnum):
    """What a client may be."""

    VIEWER = "viewer"


class Access:
    """Decides who a client is.

    Args:
        settings: The tokens.
    """

    def __init__(self, settings: HttpSettings) -> None:
        self._viewer_tokens = [token.encode() for token in settings.viewer_tokens]

    def role(self, request: Request) -> Role | None:
        """Returns the role of the client; ``None`` for none."""
        if not self._viewer_tokens:
            # A page of another site can have a browser here ask this server by a name of that site's own.
            return Role.VIEWER if is_local(request.url.hostname or "") else None
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        # All are compared, each in the same time, so that the time tells nothing.
        matches = [hmac.compare_digest(given.strip().encode(), token) for token in self._viewer_tokens]
        return Role.VIEWER if any(matches) else None

    def viewer(self, handler: Handler) -> Handler:
        """Makes a handler that serves viewers only."""

        async def serve(request: Request) -> Response:
            if self.role(request) is None:
                return self._refusal()
            return await handler(request)

        return serve

    def _refusal(self) -> Response:
        if self._viewer_tokens:
            error = "a token of a viewer is needed: Authorization: Bearer TOKEN"
            return JSONResponse({"error": error}, 401, {"WWW-Authenticate": "Bearer"})
        return JSONResponse({"error": "ask by a name or address of loopback, such as 127.0.0.1"}, 403)
