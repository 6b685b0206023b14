"""What the server answers, as an ASGI application."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from fastapi import FastAPI
from outbox_core.monitoring.figures import RunningOutboxes
from outbox_core.monitoring.polls import Poll, StatusPolls
from outbox_core.monitoring.statuses import Statuses
from outbox_core.settings import HarvestSettings, Settings
from outbox_core.status.history import History
from outbox_core.text.duration import format_duration
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outbox_console.access import Access
from outbox_console.api import Api
from outbox_console.minutes import MinuteReaders
from outbox_console.page.page import Page
from outbox_console.page.parts import Outboxes, Parts
from outbox_console.page.refused import Refused
from outbox_console.page.rendering import Templates
from outbox_console.prometheus import Prometheus
from outbox_console.replays import Replays
from outbox_console.requests import OneLength
from outbox_console.work import Work

STATUS_PATIENCE = 5.0
"""Seconds for which a client waits for databases."""
METRICS_PATIENCE = 2.0
"""Seconds for which a scrape does, which has other figures to return."""

_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (
        b"content-security-policy",
        b"default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'",
    ),
    (b"referrer-policy", b"same-origin"),
)


def application(
    settings: Settings,
    observe: RunningOutboxes,
    polls: StatusPolls,
    prometheus: Prometheus,
    history: Callable[[str], History] = lambda _: History(),
    *,
    replays: Replays | None = None,
) -> FastAPI:
    """Makes the application."""
    access = Access(settings.http)
    replays = replays or Replays()
    answers = Answers(settings, observe, polls, prometheus)
    work = Work()
    templates = Templates(settings)
    readers = MinuteReaders()
    parts = Parts(Outboxes(observe, readers), Statuses(polls), access, templates, work, replays)
    probes = [
        # Open to everybody, as probes have no token; they tell nothing of outboxes.
        Route("/livez", answers.livez),
        Route("/readyz", answers.readyz),
        Route("/metrics", access.viewer(answers.metrics)),
    ]
    routes = [
        *probes,
        *Api(observe, access, work, history, answers.status, replays=replays, readers=readers).routes,
        *Page(parts, history, several=settings.several).routes(),
    ]
    return FastAPI(
        routes=[*probes, *_below(settings.http.prefix, routes)] if settings.http.prefix else routes,
        middleware=[Middleware(_WithHeaders), Middleware(OneLength)],
        exception_handlers=Refused(access, templates).handlers,
        openapi_url=None,  # Api describes itself, to viewers only
        redirect_slashes=False,  # to the scheme and the host that a proxy asks by
        telemetry={"tracing": False, "metrics": False, "logs": False},  # traces are those of records
    )


def _below(prefix: str, routes: Sequence[BaseRoute]) -> list[BaseRoute]:
    """Returns what serves the same below a path."""

    async def start(_: Request) -> Response:
        return RedirectResponse(f"{prefix}/", 303)

    return [Route(prefix, start), Mount(prefix, app=Router(routes, redirect_slashes=False))]


class Answers:
    """Answers requests; see :func:`application`."""

    def __init__(
        self, settings: Settings, observe: RunningOutboxes, polls: StatusPolls, prometheus: Prometheus
    ) -> None:
        self._several = settings.several
        self._observe = observe
        self._polls = polls
        self._prometheus = prometheus

    async def livez(self, _: Request) -> Response:
        """Says that this process lives. One whose harvest has ended ends itself."""
        return PlainTextResponse("ok\n")

    async def readyz(self, _: Request) -> Response:
        """Says whether this process takes part: it leads an outbox or stands by, warm."""
        taking_part = [each.harvest.takes_part for each in self._observe()]
        said = f"takes part in {sum(taking_part)} of {len(taking_part)} elections\n"
        return PlainTextResponse(said, 200 if any(taking_part) else 503)

    async def metrics(self, request: Request) -> Response:
        """Returns all metrics; those of a database that does not answer in time are left out."""
        await self._poll(METRICS_PATIENCE)
        text, content_type = self._prometheus.write(request.headers.get("accept", ""))
        return Response(text, headers={"Content-Type": content_type})

    async def status(self, response: Response) -> dict[str, Any]:
        """Returns the state of all outboxes, as ``outbox status --json`` does."""
        polls = await self._poll(STATUS_PATIENCE)
        known = [poll for _outbox, poll in polls if poll.data is not None]
        response.status_code = 200 if known or not polls else 503
        if not self._several:
            [(_outbox, poll)] = polls
            return _told(poll)
        return {"outboxes": [{"label": outbox.title, **_told(poll)} for outbox, poll in polls]}

    async def _poll(self, seconds: float) -> list[tuple[HarvestSettings, Poll]]:
        """Polls all outboxes, together with others who ask now, for so long at most."""
        outboxes = [each.settings for each in self._observe()]
        asked = [asyncio.wrap_future(self._polls.ask(outbox)) for outbox in outboxes]
        if asked:
            await asyncio.wait(asked, timeout=seconds)
        late = Poll(monotonic(), None, f"the database has not answered for {format_duration(seconds)}")
        return [
            (outbox, future.result() if future.done() else late)
            for outbox, future in zip(outboxes, asked, strict=True)
        ]


def _told(poll: Poll) -> dict[str, Any]:
    return {"error": poll.error} if poll.data is None else dict(poll.data)


class _WithHeaders:
    """Adds headers to every answer: none is to be stored, or taken for another type."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        await self._app(scope, receive, send_with_headers)
