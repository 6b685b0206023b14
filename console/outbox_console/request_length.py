"""Where a request ends: a proxy and this server must see it at the same byte."""

from __future__ import annotations

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send


class OneLength:
    """Refuses requests that say twice how long they are, and closes their connection.

    A proxy that believes the other one of the two would take a part of a body for the next request, or the
    other way round. That request could name any user, and the proxy would not have looked at it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        names = [name for name, _ in scope.get("headers", ())]
        if names.count(b"content-length") + names.count(b"transfer-encoding") > 1:
            answer = JSONResponse({"error": "the request has two lengths"}, 400, {"Connection": "close"})
            await answer(scope, receive, send)
        else:
            await self._app(scope, receive, send)
