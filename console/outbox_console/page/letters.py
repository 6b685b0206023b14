"""Finds dead letters, and asks before a verb is done to all that were found."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from urllib.parse import urlencode

from outbox_api.seams.parking import DeadLetterStatus
from outbox_core import operations
from outbox_core.operations import LetterFilter, Verb
from outbox_core.settings import HarvestSettings
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from outbox_console.page.choices import EMPTY, LETTERS, filter_of, filter_of_address, integers
from outbox_console.page.parts import Parts
from outbox_console.page.verbs import Verbs
from outbox_console.requests import RefusedError, single_fields
from outbox_console.view.letters import SORTS, Matches, matches

_EMPTY = dict.fromkeys((*LETTERS, *LetterFilter.names()), "")


class Letters:
    """Answers requests for dead letters that meet conditions."""

    def __init__(self, parts: Parts, verbs: Verbs) -> None:
        self._parts = parts
        self._verbs = verbs

    def routes(self) -> list[Route]:
        """Returns what is served. A search for a key is a POST: proxies note addresses."""
        access = self._parts.access
        return [
            Route("/letters", access.viewer(self.show), methods=["GET", "POST"]),
            Route("/letters/do/{verb}", access.operator(self.ask), methods=["POST"]),
        ]

    async def show(self, request: Request) -> Response:
        """Shows a page of those that match; a form without a key leads to the address that shows the same."""
        form, is_address = dict(request.query_params), request.method != "POST"
        if not is_address:
            self._parts.access.require_own_post(request)
            form = await single_fields(request)
        given = {name: value for name, value in form.items() if value}
        has_key = "text" in given or given.get("by") == EMPTY
        if not has_key:
            given.pop("by", None)
            if not is_address:
                return RedirectResponse(f"{self._parts.access.prefix}/letters?{urlencode(given)}", 303)
        chosen = filter_of_address(given) if is_address else filter_of(given)
        outbox = self._parts.outboxes.named(given.get("outbox"))
        status, sort, page = _view(given)
        found, error = await self._matches(outbox, status, chosen, sort, page)
        return self._parts.page(
            request,
            "letters.html",
            outbox=outbox.title,
            status=str(status),
            found=found,
            error=error,
            sort=sort,
            sorts=tuple(SORTS),
            has_key=has_key,
            hashed=outbox.key_names.hashed,
            filtered=chosen != LetterFilter(),
            form={**_EMPTY, **given, "outbox": outbox.title, "status": str(status)},
        )

    async def ask(self, request: Request) -> Response:
        """Says what a verb would do to all that match, and asks; changes nothing."""
        form = await single_fields(request)
        outbox = self._parts.outboxes.named(form.get("outbox"))
        verb = next((each for each in Verb if each == request.path_params["verb"]), None)
        if verb is None or verb.about.status is None:
            raise RefusedError(404, "there is no such verb here")
        confirmation = await self._verbs.of_matching(verb, outbox, filter_of(form))
        return self._verbs.ask(request, verb, outbox, confirmation, verb.effect())

    async def _matches(
        self, outbox: HarvestSettings, status: DeadLetterStatus, chosen: LetterFilter, sort: str, page: int
    ) -> tuple[Matches | None, str]:
        """Returns what matches, and why it cannot be read anew; whole keys are compared in the database."""
        if chosen.keys:
            read = partial(operations.letters, outbox, status, chosen.keys)
            found, error = await self._parts.work.read(read), ""
        else:
            contents = await self._parts.outboxes.shelf(outbox).get()
            if contents.letters is None:
                return None, contents.error
            found = [each for each in contents.letters if each.status is status]
            error = contents.error
        look = partial(matches, found, chosen, outbox.key_names, sort, page)
        return await self._parts.work.read(look), error


def _view(given: Mapping[str, str]) -> tuple[DeadLetterStatus, str, int]:
    """Returns how an address or a form looks at what it chooses: state, order and page."""
    status = given.get("status", DeadLetterStatus.PARKED)
    sort = given.get("sort", "id")
    if status not in set(DeadLetterStatus) or sort not in SORTS:
        raise RefusedError(400, f"status is parked or skipped, and sort one of {', '.join(SORTS)}")
    page = next(iter(integers(given.get("page", ""))), 1)
    return DeadLetterStatus(status), sort, page
