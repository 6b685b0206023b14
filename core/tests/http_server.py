"""For tests of who may do what: a real server, whose outboxes nobody looks at."""

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fastapi import FastAPI
from outbox_console.app import application
from outbox_console.prometheus import Prometheus
from outbox_console.server import HttpServer
from outbox_core.config import parse
from outbox_core.leadership.leader import Totals
from outbox_core.monitoring.figures import Figures, RunningOutbox
from outbox_core.monitoring.polls import StatusPolls
from outbox_core.settings import Settings

from .http_client import Answered, Site

VIEWER, ALICE, BOB = "a-token-of-a-viewer", "the-token-of-alice", "the-token-of-bobby"
OPERATORS = {"alice": ALICE, "bob": BOB}
ORIGIN = "https://outbox.example"
READ, VERB = "/openapi.json", "/api/retry"
JSON = ("Content-Type", "application/json")
USER = "X-Forwarded-User"
PROXY = {
    "addresses": ["127.0.0.2"],
    "userHeader": USER,
    "groupsHeader": "X-Forwarded-Groups",
    "operators": ["carol"],
    "operatorGroups": ["on-call"],
}
TRUSTED = "127.0.0.2"
SAME = ("Sec-Fetch-Site", "same-origin")


class Harvest:
    """A harvest that does nothing."""

    takes_part = True
    leads = False
    totals = Totals()


def settings_of(harvest: Mapping[str, object] | None = None, **http: Any) -> Settings:
    data = {"http": {"listen": "127.0.0.1:0", **http}, "harvest": {"engine": "inline", **(harvest or {})}}
    return parse(json.dumps(data))


class Server(Site):
    """A server, and what it serves."""

    def __init__(self, port: int, app: FastAPI) -> None:
        super().__init__(port)
        self.app = app


@contextmanager
def serving(settings: Settings) -> Iterator[Server]:
    def observe() -> list[RunningOutbox]:
        return [RunningOutbox(outbox, Harvest()) for outbox in settings.outboxes]

    def nobody() -> Any:
        raise AssertionError("nobody looks")

    looks = StatusPolls(nobody)
    app = application(settings, observe, looks, Prometheus(Figures(observe, looks), "test"))
    with HttpServer(settings.http.address, app) as server:
        yield Server(server.address.port, app)


def bearer(token: str) -> tuple[str, str]:
    return ("Authorization", f"Bearer {token}")


def basic(token: str) -> tuple[str, str]:
    """Returns what a browser sends once somebody has typed a token as the password."""
    return ("Authorization", f"Basic {b64encode(f'anybody:{token}'.encode()).decode()}")


def verb(site: Site, *headers: tuple[str, str], peer: str = "127.0.0.1") -> Answered:
    """Asks for an action that lacks its ids: 400 says that it would be done otherwise."""
    return site.ask("POST", VERB, JSON, *headers, body="{}", peer=peer)


def error(answered: Answered) -> str:
    return str(json.loads(answered.text)["error"])
