"""The operator's page: its addresses, and what each of them answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files

from outbox_api.seams.parking import DeadLetterStatus
from outbox_core.settings import HarvestSettings
from outbox_core.status.history import History
from outbox_core.status.model import overall, status_of, worst_first
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from outbox_console.clients import Role
from outbox_console.page.kept import Kept
from outbox_console.page.live import Fragment, Shared, Turns, overview_seconds
from outbox_console.page.parts import Parts
from outbox_console.page.records import Records
from outbox_console.page.verbs import Actions, Verbs
from outbox_console.view.dead_letters import listed, noted
from outbox_console.view.history import graphs, known_since, recent

MOST_ENTRIES = 20
"""Entries of the journal that the page of an outbox shows."""

_STATIC = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}

Histories = Callable[[str], History]
"""Returns the history of the outbox of a title."""


class Page:
    """Answers requests for the page."""

    def __init__(self, parts: Parts, histories: Histories, *, several: bool) -> None:
        self._parts = parts
        self._histories = histories
        self._several = several
        self._verbs = Verbs(parts, Actions())
        self._fragments: dict[tuple[str, Role], Shared] = {}
        self._turns = Turns()
        self._static = {name: files(__package__).joinpath("static", name).read_bytes() for name in _STATIC}

    def routes(self) -> list[BaseRoute]:
        """Returns what is served."""
        viewer = self._parts.access.viewer
        return [
            Route("/", viewer(self.start)),
            Route("/outbox", viewer(self.outbox)),
            Route("/outbox/live", viewer(self.live)),
            Route("/help", viewer(self.help)),
            Route("/static/{name}", self.static),  # open: what tells somebody to sign in needs it
            *self._verbs.routes(),
            *Kept(self._parts, self._verbs, self._turns).routes(),
            *Records(self._parts).routes(),
        ]

    async def static(self, request: Request) -> Response:
        """Returns a file that pages need."""
        name = request.path_params["name"]
        if name not in self._static:
            return Response(status_code=404)
        return Response(self._static[name], media_type=_STATIC[name])

    async def start(self, request: Request) -> Response:
        """Shows all outboxes, or the only one."""
        return await self._show(request, None if self._several else self._parts.outboxes.named(None))

    async def outbox(self, request: Request) -> Response:
        """Shows one outbox."""
        name = request.query_params.get("name")
        return (
            await self._show(request, self._parts.outboxes.named(name))
            if name
            else RedirectResponse(f"{self._parts.access.prefix}/", 303)
        )

    async def live(self, request: Request) -> Response:
        """Returns that part of a page that changes, if it has, and says when to ask again."""
        name = request.query_params.get("name")
        outbox = self._parts.outboxes.named(name) if name or not self._several else None
        return self._turns.answer(request, await self._fragment(request, outbox))

    async def help(self, request: Request) -> Response:
        """Says what problems mean, and what to do."""
        return self._parts.page(request, "help.html")

    async def _show(self, request: Request, outbox: HarvestSettings | None) -> Response:
        done, unknown = self._verbs.outcome(request)
        return self._parts.page(
            request,
            "page.html",
            fragment=await self._fragment(request, outbox),
            outbox=outbox.title if outbox else "",
            done=done,
            unknown=unknown,
        )

    async def _fragment(self, request: Request, outbox: HarvestSettings | None) -> Fragment:
        client = self._parts.access.client(request)
        role = client.role if client is not None else Role.VIEWER
        if outbox is None:
            role = Role.VIEWER  # for whom it is the same
        title = outbox.title if outbox else ""
        if (title, role) not in self._fragments:
            make = self._overview if outbox is None else partial(self._details, outbox, role)
            self._fragments[title, role] = Shared(make)
        outboxes = [outbox] if outbox else self._parts.outboxes.all()
        return await self._fragments[title, role].get(self._parts.outboxes.changed_at(outboxes))

    async def _overview(self) -> Fragment:
        outboxes = self._parts.outboxes.all()
        known = await self._parts.watch.poll(outboxes, self._parts.outboxes.changed_at(outboxes))
        now = datetime.now(UTC)
        found = [
            status_of(outbox.title, each, now, steady=True)
            for outbox, each in zip(outboxes, known, strict=True)
        ]
        judged = overall(found)
        text = self._parts.templates.write("overview.html", outboxes=worst_first(found), overall=judged)
        # Those that do not answer cost nothing; what is not known yet is looked at again at once.
        unknown = any(each.snapshot is None and each.away_since is None for each in known)
        answered = sum(each.away_since is None for each in known)
        seconds = overview_seconds(0 if unknown else answered)
        return Fragment.of(text, f"{judged.short} · all outboxes", seconds)

    async def _details(self, outbox: HarvestSettings, role: Role) -> Fragment:
        outboxes = self._parts.outboxes
        [known], contents = await asyncio.gather(
            self._parts.watch.poll([outbox], outboxes.changed_at([outbox])), outboxes.shelf(outbox).get()
        )
        now = datetime.now(UTC)
        parked, skipped = (
            listed([each for each in contents.letters or () if each.status is status], outbox.key_names)
            for status in (DeadLetterStatus.PARKED, DeadLetterStatus.SKIPPED)
        )
        history = self._histories(outbox.title)
        points = history.points()
        found = status_of(outbox.title, known, now, steady=True)
        text = self._parts.templates.write(
            "outbox.html",
            outbox=found,
            parked=parked,
            skipped=skipped,
            read=contents.letters is not None,
            error=contents.error,
            entries=[noted(each) for each in (contents.entries or ())[:MOST_ENTRIES]],
            journal_error=contents.journal_error,
            graphs=graphs(points, now),
            known_since=known_since(points, now),
            events=recent(history.events()),
            operates=role is Role.OPERATOR,
        )
        return Fragment.of(text, f"{found.verdict.short} · {outbox.title}")
