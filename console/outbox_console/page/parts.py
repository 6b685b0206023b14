"""What all parts of the page work with."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import HTMLResponse

from outbox_console.access import Access
from outbox_console.page.live import Statuses
from outbox_console.page.outboxes import Outboxes
from outbox_console.page.rendering import Templates
from outbox_console.work import Work


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
    watch: Statuses
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
