"""What a client is told that does not get what it asked for."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response


class RefusedError(Exception):
    """A request is not answered as asked.

    Attributes:
        code: The HTTP status.
        sentence: Why, and what to do; free of secrets.
        headers: Further headers of the answer.
    """

    def __init__(self, code: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
        self.headers = dict(headers or {})


def refusal(request: Request, error: RefusedError) -> Response:
    """Returns the answer: a sentence for a browser, ``{"error": …}`` for all others."""
    if wants_page(request):
        return PlainTextResponse(f"{error.sentence}\n", error.code, error.headers)
    return JSONResponse({"error": error.sentence}, error.code, error.headers)


def wants_page(request: Request) -> bool:
    """Returns whether a person looks at the answer."""
    return "text/html" in request.headers.get("accept", "") and not request.url.path.startswith("/api/")
