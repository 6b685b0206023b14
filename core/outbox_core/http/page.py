"""The operator's page: its addresses, and what each of them answers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from outbox_core.config.settings import HarvestSettings, Settings
from outbox_core.http.access import Access
from outbox_core.http.page_letters import Contents, Shelf
from outbox_core.http.page_live import Fragment, Shared, Watch
from outbox_core.http.view import Shown, clock, date_and_clock, letter, overall, shown, worst_first
from outbox_core.monitoring.looks import Looks
from outbox_core.monitoring.observed import Observe

MOST_LETTERS = 200
"""Dead letters of each state that a list shows."""

_STATIC = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}


class Page:
    """Answers requests for the page.

    Args:
        settings: The configuration.
        observe: Returns the outboxes that this process harvests.
        looks: Looks at their databases.
        access: Says who a client is.
    """

    def __init__(self, settings: Settings, observe: Observe, looks: Looks, access: Access) -> None:
        self._settings = settings
        self._observe = observe
        self._access = access
        self._watch = Watch(looks)
        self._shelves: dict[str, Shelf] = {}
        self._fragments: dict[tuple[str, str], Shared] = {}
        self._templates = _templates(settings)
        self._static = {name: files(__package__).joinpath("static", name).read_bytes() for name in _STATIC}

    def routes(self) -> list[Route]:
        """Returns what is served."""
        viewer = self._access.viewer
        return [
            Route("/", viewer(self.start)),
            Route("/outbox", viewer(self.outbox)),
            Route("/outbox/live", viewer(self.live)),
            Route("/static/{name}", self.static),  # open: a page for signing in needs it
        ]

    async def static(self, request: Request) -> Response:
        """Returns a file that pages need."""
        name = request.path_params["name"]
        if name not in self._static:
            return Response(status_code=404)
        return Response(self._static[name], media_type=_STATIC[name])

    async def start(self, request: Request) -> Response:
        """Shows all outboxes, or the only one."""
        outboxes = self._outboxes()
        if not self._settings.several and len(outboxes) == 1:
            return await self._show(request, outboxes[0])
        return await self._show(request, None)

    async def outbox(self, request: Request) -> Response:
        """Shows one outbox."""
        if not request.query_params.get("name"):
            return RedirectResponse("/", 303)
        chosen = self._chosen(request.query_params["name"])
        return self._not_found(request) if chosen is None else await self._show(request, chosen)

    async def live(self, request: Request) -> Response:
        """Returns that part of a page that changes."""
        name = request.query_params.get("name", "")
        chosen = self._chosen(name)
        if chosen is None and name:
            return Response(status_code=404)
        return HTMLResponse((await self._fragment(request, chosen)).text)

    async def _show(self, request: Request, outbox: HarvestSettings | None) -> Response:
        title = outbox.title if outbox else ""
        fragment = await self._fragment(request, outbox)
        text = self._templates.get_template("page.html").render(fragment=fragment, outbox=title)
        return HTMLResponse(text)

    def _not_found(self, request: Request) -> Response:
        del request
        text = self._templates.get_template("message.html").render(
            heading="There is no such outbox", said="This process does not harvest it, or not any more."
        )
        return HTMLResponse(text, 404)

    async def _fragment(self, request: Request, outbox: HarvestSettings | None) -> Fragment:
        role = str(self._access.role(request))
        title = outbox.title if outbox else ""
        if (title, role) not in self._fragments:
            make = self._overview if outbox is None else partial(self._details, outbox)
            self._fragments[title, role] = Shared(make)
        return await self._fragments[title, role].get()

    async def _overview(self) -> Fragment:
        outboxes = self._outboxes()
        known = await self._watch.look(outboxes)
        now = datetime.now(UTC)
        all_shown: Sequence[Shown] = [
            shown(outbox.title, each, now) for outbox, each in zip(outboxes, known, strict=True)
        ]
        template = self._templates.get_template("overview.html")
        judged = overall(all_shown)
        text = template.render(outboxes=worst_first(all_shown), overall=judged, now=now)
        return Fragment(text, f"{judged.short} · all outboxes")

    async def _details(self, outbox: HarvestSettings) -> Fragment:
        [known] = await self._watch.look([outbox])
        contents = await self._shelf(outbox).get()
        names = outbox.key_names
        letters = [letter(each, names) for each in contents.letters or ()]
        now = datetime.now(UTC)
        found = shown(outbox.title, known, now)
        text = self._templates.get_template("outbox.html").render(
            outbox=found,
            parked=[each for each in letters if each.status == "parked"],
            skipped=[each for each in letters if each.status == "skipped"],
            read=contents.letters is not None,
            error=contents.error,
            hashed=names.hashed,
            most=MOST_LETTERS,
            now=now,
        )
        return Fragment(text, f"{found.verdict.short} · {outbox.title}")

    def _shelf(self, outbox: HarvestSettings) -> Shelf:
        if outbox.title not in self._shelves:
            self._shelves[outbox.title] = Shelf(outbox.title, partial(_read, outbox))
        return self._shelves[outbox.title]

    def _outboxes(self) -> list[HarvestSettings]:
        return [each.settings for each in self._observe()]

    def _chosen(self, title: str) -> HarvestSettings | None:
        return next((each for each in self._outboxes() if each.title == title), None)


def _read(outbox: HarvestSettings) -> Contents:
    with closing(outbox.dialect.create().dead_letters(read_only=True)) as dead:
        return Contents(dead.find(values=False))


def _templates(settings: Settings) -> Environment:
    templates = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    templates.filters |= {"clock": clock, "date_and_clock": date_and_clock}
    templates.globals |= {
        "process": settings.process.name,
        "zone": datetime.now().astimezone().tzname(),
        "several": settings.several,
    }
    return templates
