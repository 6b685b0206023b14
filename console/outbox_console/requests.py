"""What every request must keep to, and what a client is told that does not get what it asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY = 64 * 1024
"""Bytes."""
_MOST_FIELDS = 2000


class RefusedError(Exception):
    """A request is not answered as asked."""

    def __init__(self, code: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.code = code  # the HTTP status
        self.sentence = sentence  # why, and what to do; free of secrets
        self.headers = dict(headers or {})  # further headers of the answer


def wants_page(request: Request) -> bool:
    """Returns whether a person looks at the answer."""
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    return "text/html" in request.headers.get("accept", "") and not path.startswith("/api/")


class AsciiJSON(JSONResponse):
    """JSON with escapes: keys of records may hold what no UTF-8 can."""

    def render(self, content: Any) -> bytes:
        """Returns the body."""
        return json.dumps(content).encode("ascii")


class OneLength:
    """Refuses requests that say twice how long they are, and closes their connection.

    A proxy and this server must see its end at the same byte. A proxy that believes the other one of the two
    would take a part of a body for the next request, or the other way round. That one could name any user,
    and the proxy would not have looked at it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        names = [name for name, _ in scope.get("headers", ())]
        if names.count(b"content-length") + names.count(b"transfer-encoding") > 1:
            answer = AsciiJSON({"error": "the request has two lengths"}, 400, {"Connection": "close"})
            await answer(scope, receive, send)
        else:
            await self._app(scope, receive, send)


async def single_fields(request: Request) -> dict[str, str]:
    """Returns the fields of a form, each with its last value."""
    body = await _body(request, "application/x-www-form-urlencoded")
    try:
        text = body.decode("utf-8")
        return dict(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS))
    except ValueError:
        raise RefusedError(400, "the body is no form") from None


async def with_json(request: Request) -> Request:
    """Returns the request, with its body read."""
    body = await _body(request, "application/json")

    async def receive() -> Message:
        return {"type": "http.request", "body": body}

    return Request(request.scope, receive)


async def _body(request: Request, kind: str) -> bytes:
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != kind:
        raise RefusedError(415, f"send a body with Content-Type: {kind}")
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY:
                raise RefusedError(
                    413, f"the body is longer than {MAX_BODY // 1024} KiB", {"Connection": "close"}
                )
    except ClientDisconnect:
        raise RefusedError(400, "the body has no end") from None
    return bytes(body)
