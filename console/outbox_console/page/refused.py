"""What is told to whoever does not get what it asked for: people on a page, programs in JSON."""

from __future__ import annotations

from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from outbox_console.access import Access
from outbox_console.page.rendering import Templates
from outbox_console.requests import AsciiJSON, RefusedError, wants_page

_MOST_OF_NAME = 100
"""Characters of a field's name that are told: of an unknown field it is the client's text."""


class Refused:
    """Answers requests that are refused."""

    def __init__(self, access: Access, templates: Templates) -> None:
        self._access = access
        self._templates = templates

    @property
    def handlers(self) -> dict[Any, Any]:
        """What answers each kind of error, for FastAPI."""
        return {
            RefusedError: self._answer,
            RequestValidationError: self._invalid,
            HTTPException: self._unserved,
        }

    async def _answer(self, request: Request, error: RefusedError) -> Response:
        if not wants_page(request):
            return AsciiJSON({"error": error.sentence}, error.code, error.headers)
        values = {"said": error.sentence, "code": error.code}
        text = self._templates.page("message.html", self._access.client(request), values)
        return HTMLResponse(text, error.code, error.headers)

    async def _invalid(self, request: Request, error: RequestValidationError) -> Response:
        """Answers a request whose query or body is not as it is described."""
        return await self._answer(request, RefusedError(400, _first(error)))

    async def _unserved(self, request: Request, error: HTTPException) -> Response:
        """Answers a request that no handler is for."""
        refused = RefusedError(error.status_code, self._why(request, error), error.headers)
        return await self._answer(request, refused)

    def _why(self, request: Request, error: HTTPException) -> str:
        if error.status_code == 405:  # noqa: PLR2004 - HTTP's status of a method that is not allowed
            ways = " or ".join(sorted((error.headers or {})["Allow"].split(", ")))
            return f"nothing was done: ask this address by {ways}, not by {request.method}"
        if error.status_code == 400:  # noqa: PLR2004 - of a body that FastAPI cannot read
            return "the body is no JSON that can be read"
        prefix = self._access.prefix
        if prefix and not request.url.path.startswith(f"{prefix}/"):
            return (
                f"all addresses of this server begin with {prefix}/ (http.path): a proxy has to pass them on "
                "as they are"
            )
        is_for_programs = request.url.path.startswith(f"{prefix}/api/")
        return "there is no such address" + (f": {prefix}/openapi.json lists all" if is_for_programs else "")


def _first(error: RequestValidationError) -> str:
    """Returns what is wrong first: with which field, but not what was sent."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return f"the body is no JSON: {first['ctx']['error']} at character {first['loc'][1]}"
    field = ".".join(map(str, first["loc"][1:]))[:_MOST_OF_NAME]
    return f"{field or 'the JSON in the body'}: {first['msg']}"
