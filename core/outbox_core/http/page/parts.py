"""What all parts of the page work with."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from outbox_core.http.access import Access, Handler
from outbox_core.http.page.live import Watch
from outbox_core.http.page.outboxes import Outboxes
from outbox_core.http.page.rendering import Templates
from outbox_core.http.refusals import RefusedError, wants_page
from outbox_core.http.work import Work


@dataclass(frozen=True, slots=True)
class Parts:
    """What all parts of the page work with.

    Attributes:
        outboxes: The outboxes.
        watch: Knows their state.
        access: Says who a client is.
        templates: Writes pages.
        work: Does what takes long.
    """

    outboxes: Outboxes
    watch: Watch
    access: Access
    templates: Templates
    work: Work

    def page(self, request: Request, name: str, code: int = 200, **values: object) -> HTMLResponse:
        """Returns a whole page for whoever asks.

        Args:
            request: Who asks.
            name: The template.
            code: The HTTP status.
            values: What the template shows.
        """
        return HTMLResponse(self.templates.page(name, self.access.client(request), values), code)

    def viewer(self, handler: Handler) -> Handler:
        """Makes a handler of a page for viewers."""
        return self.access.viewer(self._telling(handler))

    def operator_reads(self, handler: Handler) -> Handler:
        """Makes a handler of a page for operators, which changes nothing."""
        return self.access.operator_reads(self._telling(handler))

    def operator(self, handler: Handler) -> Handler:
        """Makes a handler of a page that changes something."""
        return self.access.operator(self._telling(handler))

    def _telling(self, handler: Handler) -> Handler:
        """Has people told on a page why they do not get what they asked for."""

        async def serve(request: Request) -> Response:
            try:
                return await handler(request)
            except RefusedError as error:
                if not wants_page(request):
                    raise
                return self.page(request, "message.html", error.code, said=error.sentence)

        return serve
