"""The view of kept records: how much is kept, and which; replays; and what erases a key."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from outbox_api.base.errors import ConfigError
from outbox_api.seams.kept import KeptRecord
from outbox_core import operations
from outbox_core.operations import Operator, Verb
from outbox_core.settings import HarvestSettings
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from outbox_console.clients import Role
from outbox_console.page.choices import FIELDS, choice_of, integers, wanted_of
from outbox_console.page.live import Fragment, Shared, Turns
from outbox_console.page.parts import Parts
from outbox_console.page.verbs import Verbs
from outbox_console.requests import RefusedError, single_fields
from outbox_console.view.dead_letters import headers, value
from outbox_console.view.kept import day, record, replay
from outbox_console.view.verbs import Confirmation

MOST = 100
"""Records that a search shows at once."""
PATIENCE = 1.0
"""Seconds for which the view waits for the replays before it is shown without them."""
_UNREAD = Fragment.of('<p class="dim">Not read yet.</p>', "")


class Kept:
    """Answers requests about kept records."""

    def __init__(self, parts: Parts, verbs: Verbs, turns: Turns) -> None:
        self._parts = parts
        self._verbs = verbs
        self._turns = turns
        self._fragments: dict[tuple[str, Role], Shared[Fragment]] = {}

    def routes(self) -> list[Route]:
        """Returns what is served. A search is a POST: proxies note addresses, and a key may be personal."""
        access = self._parts.access
        return [
            Route("/kept", access.viewer(self.show), methods=["GET", "POST"]),
            Route("/kept/live", access.viewer(self.live)),
            Route("/kept/record", access.viewer(self.record)),
            Route("/kept/reveal", access.operator(self.reveal), methods=["POST"]),
            Route("/kept/replay", access.operator(self.replay), methods=["POST"]),
            Route("/kept/erase", access.operator(self.erase), methods=["POST"]),
        ]

    async def show(self, request: Request) -> Response:
        """Shows how much is kept, the replays, and the records that a form looks for, without values."""
        form = dict[str, str]()
        if request.method == "POST":
            self._parts.access.require_own_post(request)
            form = await single_fields(request)
        outbox = self._parts.outboxes.named(form.get("outbox") or request.query_params.get("outbox"))
        found, after = None, ""
        if form:
            begin = next(iter(integers(form.get("after", ""))), 0)
            find = partial(operations.kept_records, outbox, choice_of(form), MOST, begin)
            records = await self._parts.work.survey(find)
            found = [record(each, outbox.key_names) for each in records]
            after = str(found[-1].position) if len(found) == MOST else ""
        done, unknown = self._verbs.outcome(request)
        read = await self._parts.outboxes.kept(outbox).get()
        return self._parts.page(
            request,
            "kept.html",
            outbox=outbox.title,
            days=None if read.days is None else [day(*each) for each in read.days],
            error=read.error,
            form={name: form.get(name, "") for name in FIELDS},
            found=found,
            after=after,
            fragment=await self._fragment(request, outbox),
            done=done,
            unknown=unknown,
        )

    async def live(self, request: Request) -> Response:
        """Returns the replays, if they have changed, and says when to ask again."""
        outbox = self._parts.outboxes.named(request.query_params.get("outbox"))
        return self._turns.answer(request, await self._fragment(request, outbox))

    async def record(self, request: Request) -> Response:
        """Shows a kept record without its value."""
        query = request.query_params
        outbox = self._parts.outboxes.named(query.get("outbox"))
        find = partial(operations.kept_record, outbox, _position(query))
        return self._record(request, outbox, await self._parts.work.read(find), revealed=False)

    async def reveal(self, request: Request) -> Response:
        """Shows a kept record with its value and its headers, which the journal notes."""
        form = await single_fields(request)
        outbox = self._parts.outboxes.named(form.get("outbox"))
        operator = Operator(self._parts.access.name(request), "http")
        look = partial(operations.reveal_kept, outbox, _position(form), operator)
        return self._record(request, outbox, await self._parts.work.action(look), revealed=True)

    async def replay(self, request: Request) -> Response:
        """Says what a replay would do, and asks; changes nothing."""
        form = await single_fields(request)
        outbox = self._parts.outboxes.named(form.get("outbox"))
        wanted, _ = wanted_of(form)
        look = partial(operations.prepare_replay, outbox, wanted, read_only=True)
        prepared = await self._parts.work.survey(look)
        sent = {name: form.get(name, "") for name in FIELDS}
        confirmation = Confirmation.of_replay(prepared, outbox.key_names, sent)
        return self._verbs.ask(request, Verb.REPLAY, outbox, confirmation, Verb.REPLAY.effect())

    async def erase(self, request: Request) -> Response:
        """Says what erasing a key would do, and asks; changes nothing."""
        form = await single_fields(request)
        outbox = self._parts.outboxes.named(form.get("outbox"))
        key, tombstone = form.get("key", ""), form.get("tombstone", "").strip()
        try:
            operations.check_erasure(key, tombstone or None)
        except ConfigError as error:
            raise RefusedError(400, f"nothing was done: {error}") from None
        live = await self._parts.work.survey(partial(operations.look_for_key, outbox, key))
        confirmation = Confirmation.of_erasure(key, tombstone, live.waiting)
        return self._verbs.ask(request, Verb.ERASE, outbox, confirmation, Verb.ERASE.effect())

    def _record(
        self, request: Request, outbox: HarvestSettings, found: KeptRecord, *, revealed: bool
    ) -> Response:
        return self._parts.page(
            request,
            "kept_record.html",
            outbox=outbox.title,
            record=record(found, outbox.key_names),
            revealed=revealed,
            value=value(found.record.value) if revealed else None,
            headers=headers(found.record) if revealed else (),
            total=len(found.record.headers),
        )

    async def _fragment(self, request: Request, outbox: HarvestSettings) -> Fragment:
        """Returns the replays, as they were read a short while ago for somebody of the same role."""
        client = self._parts.access.client(request)
        role = client.role if client is not None else Role.VIEWER
        if (outbox.title, role) not in self._fragments:
            self._fragments[outbox.title, role] = Shared(partial(self._replays, outbox, role))
        shared = self._fragments[outbox.title, role].get(self._parts.outboxes.changed_at([outbox]))
        try:
            return await asyncio.wait_for(shared, PATIENCE)
        except TimeoutError:
            return _UNREAD

    async def _replays(self, outbox: HarvestSettings, role: Role) -> Fragment:
        here, error = self._parts.replays.last(outbox), ""
        running = here.name if here is not None and here.is_running else ""
        try:
            found = await self._parts.work.read(partial(operations.list_replays, outbox))
        except RefusedError as refused:
            found, error = [], refused.sentence
        text = self._parts.templates.write(
            "replays.html",
            outbox=outbox.title,
            replays=[replay(each, here=each.name == running) for each in found],
            error=error,
            failed=here if here is not None and here.error else None,
            operates=role is Role.OPERATOR,
        )
        return Fragment.of(text, "")


def _position(given: Mapping[str, str]) -> int:
    found = integers(given.get("position", ""))
    if len(found) != 1 or found[0] < 1:
        raise RefusedError(400, "name the record, by its position")
    return found[0]
