"""For tests behind a proxy: a client that asks as a browser does."""

import http.client
import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from urllib.parse import urlencode

from .http_client import Answered
from .http_server import SAME, basic

FORM = ("Content-Type", "application/x-www-form-urlencoded")


class Browser:
    """Asks with cookies of the proxy, and with what a browser says of a request."""

    def __init__(self, port: int) -> None:
        self.cookies: dict[str, str] = {}
        self._port = port
        self._remembered: tuple[tuple[str, str], ...] = ()

    def get(self, path: str, accept: str = "text/html", headers: Sequence[tuple[str, str]] = ()) -> Answered:
        return self._ask("GET", path, ("Accept", accept), *headers)

    def send(
        self, path: str, fields: Mapping[str, str], *headers: tuple[str, str], accept: str = "text/html"
    ) -> Answered:
        """Sends a form, by default of a page of this server."""
        return self._ask(
            "POST", path, ("Accept", accept), FORM, *(headers or (SAME,)), body=urlencode(fields)
        )

    def follow(self, answered: Answered) -> Answered:
        """Goes where an answer leads, which is a path."""
        assert answered.code == 303, answered
        assert answered.headers["location"].startswith("/")
        return self.get(answered.headers["location"])

    def sign_in(self, token: str) -> None:
        """Sends a token as the password from now on."""
        self._remembered = (basic(token),)

    def _ask(self, method: str, path: str, *headers: tuple[str, str], body: str | None = None) -> Answered:
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        named = dict((*self._remembered, *headers)) | ({"Cookie": cookies} if cookies else {})
        with closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)) as connection:
            connection.request(method, path, body, named)
            answer = connection.getresponse()
            told = {name.lower(): value for name, value in answer.getheaders()}
            return Answered(answer.status, answer.read().decode(), told)


def fields_of(page: Answered) -> dict[str, str]:
    assert page.code == 200, page
    return dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page.text))
