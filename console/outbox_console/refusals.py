"""What a client is told that does not get what it asked for."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request


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


def wants_page(request: Request) -> bool:
    """Returns whether a person looks at the answer."""
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    return "text/html" in request.headers.get("accept", "") and not path.startswith("/api/")
