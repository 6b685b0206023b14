"""One dead letter, with its values only if an operator asks for them; and the journal."""

from __future__ import annotations

from functools import partial
from threading import Lock

from outbox_api.base.errors import ConfigError, OutboxError
from outbox_api.seams.parking import DeadLetter
from outbox_core import operations
from outbox_core.operations import Operator
from outbox_core.settings import HarvestSettings
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from outbox_console.page.choices import integers
from outbox_console.page.parts import ENTRIES, Parts
from outbox_console.requests import RefusedError, single_fields
from outbox_console.view.dead_letters import headers, letter, noted, value

_GONE = (
    "there is no such dead letter any more: it was retried, redriven or deleted meanwhile; see the journal"
)
_ENTRIES = ("operator", "verb", "since", "until", "after")
"""What an address of the journal chooses."""


class Records:
    """Answers requests about single dead letters, and about the journal."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._counting = Lock()

    def routes(self) -> list[Route]:
        """Returns what is served."""
        return [
            Route("/letter", self._parts.access.viewer(self.show)),
            Route("/letter/reveal", self._parts.access.operator(self.reveal), methods=["POST"]),
            Route("/journal", self._parts.access.viewer(self.journal)),
        ]

    async def show(self, request: Request) -> Response:
        """Shows a dead letter without its values; counts the rows behind it if asked to."""
        query = request.query_params
        outbox = self._parts.outboxes.named(query.get("outbox"))
        found = await self._letter(outbox, query.get("id", ""))
        rows = None
        if query.get("count") == "1":
            rows = await self._parts.work.read(partial(self._count, outbox, found.record.id))
        return self._page(request, outbox, found, rows=rows, revealed=False)

    async def reveal(self, request: Request) -> Response:
        """Shows a dead letter with its value and its headers, which the journal notes."""
        form = await single_fields(request)
        outbox = self._parts.outboxes.named(form.get("outbox"))
        known = await self._letter(outbox, form.get("id", ""))
        operator = Operator(
            self._parts.access.name(request),
            "http",
            " ".join(form.get("reason", "").split())[: operations.LONGEST_REASON],
        )
        ask = partial(operations.reveal, outbox, [known.record.id], operator)
        found = await self._parts.work.action(ask)
        if not found:
            raise RefusedError(404, _GONE)
        return self._page(request, outbox, found[0], rows=None, revealed=True)

    async def journal(self, request: Request) -> Response:
        """Shows what was noted of an outbox: the last entries, or those that an address chooses."""
        query = request.query_params
        outbox = self._parts.outboxes.named(query.get("outbox"))
        form = {name: query.get(name, "").strip() for name in _ENTRIES}
        error = ""
        if any(form.values()):
            try:
                chosen = operations.entries_of(**form)
            except ConfigError as wrong:
                raise RefusedError(400, str(wrong)) from None
            entries = await self._parts.work.read(partial(operations.entries, outbox, ENTRIES, chosen))
        else:
            contents = await self._parts.outboxes.shelf(outbox).get()
            entries, error = contents.entries or (), contents.journal_error or contents.error
        return self._parts.page(
            request,
            "journal.html",
            outbox=outbox.title,
            entries=[noted(each) for each in entries],
            form={**form, "outbox": outbox.title},
            more=str(entries[-1].id) if len(entries) == ENTRIES else "",
            error=error,
        )

    def _count(self, outbox: HarvestSettings, letter: int) -> int:
        """Counts rows on a thread; one at a time, so that viewers cannot take all threads from operators."""
        if not self._counting.acquire(blocking=False):
            raise OutboxError("rows are being counted for somebody else: try again in a while")
        try:
            return operations.waiting(outbox, letter)
        finally:
            self._counting.release()

    async def _letter(self, outbox: HarvestSettings, number: str) -> DeadLetter:
        ids = integers(number)
        contents = await self._parts.outboxes.shelf(outbox).get()
        for each in contents.letters or ():
            if ids == [each.record.id]:
                return each
        if contents.letters is None:
            raise RefusedError(503, f"the dead letters cannot be read: {contents.error or 'not yet'}")
        raise RefusedError(404, _GONE)

    def _page(
        self,
        request: Request,
        outbox: HarvestSettings,
        found: DeadLetter,
        *,
        rows: int | None,
        revealed: bool,
    ) -> Response:
        return self._parts.page(
            request,
            "letter.html",
            outbox=outbox.title,
            letter=letter(found, outbox.key_names),
            rows=rows,
            revealed=revealed,
            value=value(found.record.value) if revealed else None,
            headers=headers(found.record) if revealed else (),
            total=len(found.record.headers),
        )
