"""The operator's page: its addresses, and what each of them answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files
from typing import NamedTuple

from outbox_api.seams.parking import DeadLetterStatus
from outbox_core.settings import HarvestSettings
from outbox_core.status.history import History
from outbox_core.status.minutes import Span, seen
from outbox_core.status.model import Status, overall, status_of
from outbox_core.status.outboxes import database_name
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from outbox_console.clients import Role
from outbox_console.page.kept import Kept
from outbox_console.page.letters import Letters
from outbox_console.page.live import Fragment, Shared, Turns, overview_seconds
from outbox_console.page.parts import Parts
from outbox_console.page.records import Records
from outbox_console.page.verbs import Actions, Verbs
from outbox_console.page.waiting import Waits
from outbox_console.view.dead_letters import listed, noted
from outbox_console.view.history import CHOICES, HistoryView
from outbox_console.view.overview import overview

MOST_ENTRIES = 20
"""Entries of the journal that the page of an outbox shows."""
LONGEST_SEARCH = 200
"""Characters of what is searched for."""
MOST_SEARCHES = 50
"""What different searches for outboxes find is kept for so many, for as long as all are looked at once."""

_STATIC = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}

Histories = Callable[[str], History]
"""Returns the history of the outbox of a title."""


class _Filters(NamedTuple):
    """Which outboxes are shown."""

    search: str
    problems: bool


class _Seen(NamedTuple):
    """All outboxes, as they were seen at once."""

    outboxes: list[Status]
    made: dict[_Filters, Fragment]  # what was made of them
    seconds: float  # for how long that serves everybody who asks


def _filters(request: Request) -> _Filters:
    query = request.query_params
    return _Filters(query.get("q", "").strip()[:LONGEST_SEARCH], query.get("problems") == "1")


class Page:
    """Answers requests for the page."""

    def __init__(self, parts: Parts, histories: Histories, *, several: bool) -> None:
        self._parts = parts
        self._histories = histories
        self._several = several
        self._verbs = Verbs(parts, Actions())
        self._fragments: dict[tuple[str, Role, Span], Shared[Fragment]] = {}
        self._databases: dict[str, str] = {}
        self._looked: Shared[_Seen] = Shared(self._look)
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
            *Letters(self._parts, self._verbs).routes(),
            *Waits(self._parts).routes(),
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
        return self._turns.answer(request, await self._fragment(request, outbox, _span(request)))

    async def help(self, request: Request) -> Response:
        """Says what problems mean, and what to do."""
        return self._parts.page(request, "help.html")

    async def _show(self, request: Request, outbox: HarvestSettings | None) -> Response:
        done, unknown = self._verbs.outcome(request)
        span = _span(request)
        return self._parts.page(
            request,
            "page.html",
            fragment=await self._fragment(request, outbox, span),
            outbox=outbox.title if outbox else "",
            span=span,
            filters=_filters(request),
            done=done,
            unknown=unknown,
        )

    async def _fragment(self, request: Request, outbox: HarvestSettings | None, span: Span) -> Fragment:
        if outbox is None:
            return await self._overview(_filters(request))
        client = self._parts.access.client(request)
        key = (outbox.title, client.role if client is not None else Role.VIEWER, span)
        if key not in self._fragments:
            self._fragments[key] = Shared(partial(self._details, outbox, *key[1:]))
        return await self._fragments[key].get(self._parts.outboxes.changed_at([outbox]))

    async def _overview(self, filters: _Filters) -> Fragment:
        """Returns all outboxes, or what a search finds; made once for all who search for the same."""
        looked = await self._looked.get(self._parts.outboxes.changed_at(self._parts.outboxes.all()))
        if filters not in looked.made:
            judged = overall(looked.outboxes)
            arranged = overview(looked.outboxes, self._databases, filters.search, problems=filters.problems)
            text = self._parts.templates.write("overview.html", found=arranged, overall=judged)
            while len(looked.made) >= MOST_SEARCHES:
                del looked.made[next(iter(looked.made))]
            looked.made[filters] = Fragment.of(text, f"{judged.short} · all outboxes")
        return looked.made[filters]

    async def _look(self) -> _Seen:
        outboxes = self._parts.outboxes.all()
        for each in outboxes:
            self._databases.setdefault(each.title, database_name(each))
        known = await self._parts.watch.poll(outboxes, self._parts.outboxes.changed_at(outboxes))
        now = datetime.now(UTC)
        found = [
            status_of(outbox.title, each, now, steady=True)
            for outbox, each in zip(outboxes, known, strict=True)
        ]
        # Those that do not answer cost nothing; what is not known yet is looked at again at once.
        unknown = any(each.snapshot is None and each.away_since is None for each in known)
        answered = sum(each.away_since is None for each in known)
        return _Seen(found, {}, overview_seconds(0 if unknown else answered))

    async def _details(self, outbox: HarvestSettings, role: Role, span: Span) -> Fragment:
        outboxes = self._parts.outboxes
        [known], contents, minutes = await asyncio.gather(
            self._parts.watch.poll([outbox], outboxes.changed_at([outbox])),
            outboxes.shelf(outbox).get(),
            outboxes.minutes(outbox).get(),
        )
        now = datetime.now(UTC)
        parked, skipped = (
            listed([each for each in contents.letters or () if each.status is status], outbox.key_names)
            for status in (DeadLetterStatus.PARKED, DeadLetterStatus.SKIPPED)
        )
        history = self._histories(outbox.title)
        happened = seen(minutes.minutes, history.points(), history.events(), now - span.length)
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
            history=HistoryView.of(happened, span, now, minutes.error or history.error),
            spans=CHOICES,
            operates=role is Role.OPERATOR,
        )
        return Fragment.of(text, f"{found.verdict.short} · {outbox.title}")


def _span(request: Request) -> Span:
    """Returns how much of a history a browser asks for."""
    try:
        return Span(request.query_params.get("span", Span.HOUR))
    except ValueError:
        return Span.HOUR
