"""What waits: topics and keys among the first rows, and the rows of one key."""

from __future__ import annotations

from functools import partial

from outbox_core import operations
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from outbox_console.page.choices import integers
from outbox_console.page.parts import Parts
from outbox_console.requests import RefusedError, single_fields
from outbox_console.view.waiting import sentences


class Waits:
    """Answers requests about what waits."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def routes(self) -> list[Route]:
        """Returns what is served. A key is looked for by POST: proxies note addresses."""
        access = self._parts.access
        return [
            Route("/waiting", access.viewer(self.show)),
            Route("/waiting/key", access.viewer(self.key), methods=["GET", "POST"]),
        ]

    async def show(self, request: Request) -> Response:
        """Shows which topics and keys the first rows have, as they were read a while ago at most."""
        query = request.query_params
        outbox = self._parts.outboxes.named(query.get("outbox"))
        topic = query.get("topic")
        seen = await self._parts.outboxes.waits(outbox).get()
        found, said = None, list[str]()
        if seen.waits is not None:
            found = seen.waits.of_topic(topic)
            marked = any(each.group.marked for each in seen.waits.topics)
            said = sentences(found, topic, lanes_mark=marked)
        return self._parts.page(
            request,
            "waiting.html",
            outbox=outbox.title,
            topic=topic,
            found=found,
            said=said,
            names=outbox.key_names,
            error=seen.error,
        )

    async def key(self, request: Request) -> Response:
        """Shows the rows of the key that a form names, or of the key of the row that an address names."""
        if request.method == "POST":
            self._parts.access.require_own_post(request)
            form = await single_fields(request)
            outbox = self._parts.outboxes.named(form.get("outbox"))
            if "key" not in form:
                raise RefusedError(400, "name the key")
            look = partial(operations.rows_of_key, outbox, form["key"])
        else:
            query = request.query_params
            outbox = self._parts.outboxes.named(query.get("outbox"))
            ids = integers(query.get("id", ""))
            if len(ids) != 1:
                raise RefusedError(400, "name a row of the key, by its id")
            look = partial(operations.rows_of_key, outbox, of=ids[0])
        found = await self._parts.work.survey(look)
        if found.key is None:
            raise RefusedError(404, "this row does not wait any more: it was delivered or skipped meanwhile")
        return self._parts.page(
            request,
            "waiting_key.html",
            outbox=outbox.title,
            found=found,
            names=outbox.key_names,
        )
