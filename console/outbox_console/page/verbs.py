"""What operators do on the page: first it says what a verb will do, then it does it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from urllib.parse import urlencode

from outbox_core import operations
from outbox_core.operations import Arguments, Changed, Operator, Raised, TakeoverChanged, Target, Verb
from outbox_core.settings import HarvestSettings
from outbox_core.status.model import status_of
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from outbox_console.page.parts import Parts
from outbox_console.requests import RefusedError
from outbox_console.requests import form as fields_of
from outbox_console.view.dead_letters import letter
from outbox_console.view.verbs import MOST, Confirmation, said

MOST_REMEMBERED = 500
"""Forms whose outcome is remembered, so that one that is sent twice acts once."""
_BEYOND = 1 << 63

_TARGETS = frozenset({Target.LETTERS, Target.CLUSTER, Target.LEADER})
"""What a form can be about."""


class Actions:
    """What came of the forms that were sent, each under the number that the form was given.

    A form that is sent twice, even while the first is at work, acts once, and both get the same answer. Used
    on the server's loop.
    """

    def __init__(self) -> None:
        self._done: dict[tuple[str, str], tuple[object, asyncio.Task[str]]] = {}

    async def once(self, who: str, number: str, what: object, do: Callable[[], Awaitable[str]]) -> str:
        """Does it, unless it is done or being done under this number; returns what came of it.

        Raises:
            RefusedError: Something else was done under this number.
        """
        name = (who, number)
        if name not in self._done:
            task = asyncio.ensure_future(do())
            task.add_done_callback(lambda done: self._forget(name, done))
            self._done[name] = what, task
            while len(self._done) > MOST_REMEMBERED:
                del self._done[next(iter(self._done))]
        before, task = self._done[name]
        if before != what:
            raise RefusedError(409, "nothing was done: this form was sent already, for something else")
        return await asyncio.shield(task)  # it goes on without whoever sent it

    def outcome(self, who: str, number: str) -> str:
        """Returns what came of a form that this operator has sent; empty if that is not known."""
        _, task = self._done.get((who, number), (None, None))
        return task.result() if task is not None and task.done() else ""

    def _forget(self, name: tuple[str, str], done: asyncio.Task[str]) -> None:
        if done.cancelled() or done.exception() is not None:
            self._done.pop(name, None)


class Verbs:
    """Answers requests about verbs."""

    def __init__(self, parts: Parts, actions: Actions) -> None:
        self._parts = parts
        self._deeds = actions

    def routes(self) -> list[Route]:
        """Returns what is served."""
        return [
            Route("/do/{verb}", self._parts.access.operator_reads(self.confirm), methods=["GET"]),
            Route("/do/{verb}", self._parts.access.operator(self.do), methods=["POST"]),
        ]

    async def confirm(self, request: Request) -> Response:
        """Says what a verb would do, and to what; changes nothing."""
        verb, query = _verb(request), request.query_params
        outbox = self._parts.outboxes.named(query.get("outbox"))
        cluster = _cluster(verb, query)
        if verb.about.target is Target.LETTERS:
            ids = None if query.get("all") == "1" else integers(",".join(query.getlist("id")))
            confirmation = await self._of_letters(verb, outbox, ids)
        else:
            if cluster is not None:
                await self._parts.work.read(partial(operations.check_cluster, outbox, verb, cluster))
            changed = self._parts.outboxes.changed_at([outbox])
            [known] = await self._parts.watch.poll([outbox], changed)
            leader = status_of(outbox.title, known, datetime.now(UTC)).leader
            confirmation = (
                Confirmation.of_fence(leader)
                if cluster is None
                else Confirmation.of_cluster(verb, cluster, leader)
            )
        return self._parts.page(
            request,
            "do.html",
            verb=str(verb),
            outbox=outbox.title,
            confirmation=confirmation,
            effect=verb.effect(cluster),
            form=secrets.token_urlsafe(12),
            longest=operations.LONGEST_REASON,
        )

    async def do(self, request: Request) -> Response:
        """Does it, and then leads back to the outbox, which says what came of it."""
        verb = _verb(request)
        form = {name: values[-1] for name, values in (await fields_of(request)).items()}
        outbox = self._parts.outboxes.named(form.get("outbox"))
        client = self._parts.access.client(request)
        who = client.name if client is not None else ""
        number = form.get("form") or secrets.token_urlsafe(12)
        act = _act(verb, outbox, form, Operator(who, "http", _reason(form)))
        what = verb, outbox.title, form.get("ids"), form.get("cluster"), form.get("seen")

        async def once() -> str:
            try:
                return await self._parts.work.action(act)
            finally:
                self._parts.outboxes.changed(outbox)

        await self._deeds.once(who, number, what, once)
        where = urlencode({"name": outbox.title, "done": number})
        return RedirectResponse(f"{self._parts.access.prefix}/outbox?{where}", 303)

    async def _of_letters(
        self, verb: Verb, outbox: HarvestSettings, ids: Sequence[int] | None
    ) -> Confirmation:
        found = await self._parts.work.read(partial(operations.letters, outbox, verb.about.status))
        chosen = [each for each in found if ids is None or each.record.id in set(ids)]
        gone = sorted({*(ids or ())} - {each.record.id for each in chosen})
        return Confirmation.of_letters(verb, [letter(each, outbox.key_names) for each in chosen], gone)


def _verb(request: Request) -> Verb:
    name = request.path_params["verb"]
    verb = next((each for each in Verb if each == name and each.about.target in _TARGETS), None)
    if verb is None:
        raise RefusedError(404, "there is no such verb here; the program outbox may have it")
    return verb


def _reason(form: Mapping[str, str]) -> str:
    reason = " ".join(form.get("reason", "").split())
    if not reason:
        raise RefusedError(400, "nothing was done: say why, for the journal")
    try:
        return operations.check_reason(reason)
    except operations.ReasonTooLong as error:
        raise RefusedError(400, str(error)) from None


def integers(text: str) -> list[int]:
    """Returns the numbers in a text, between commas."""
    try:
        found = [int(each) for each in text.split(",") if each.strip()]
    except ValueError:
        raise RefusedError(400, "an id or a cluster is no number") from None
    if len(found) > MOST or any(abs(each) >= _BEYOND for each in found):
        raise RefusedError(400, f"{MOST:,} ids at most are taken at once, each of 64 bits")
    return found


def _cluster(verb: Verb, form: Mapping[str, str]) -> int | None:
    if verb.about.target is not Target.CLUSTER:
        return None
    found = integers(form.get("cluster", ""))
    if len(found) != 1:
        raise RefusedError(400, "name the cluster, by its number")
    return found[0]


def _act(
    verb: Verb, outbox: HarvestSettings, form: Mapping[str, str], operator: Operator
) -> Callable[[], str]:
    """Returns what does it, and says what came of it."""
    ids = integers(form.get("ids", "")) if verb.about.target is Target.LETTERS else []
    if verb.about.target is Target.LETTERS and not ids:
        raise RefusedError(400, "nothing was done: no record is chosen")
    # A proxy may bring a form that is sent twice to two harvesters, or an hour later.
    seen = next(iter(integers(form.get("seen", ""))), None)
    to = Arguments(ids, _cluster(verb, form) or 0, seen)

    def act() -> str:
        done = operations.perform(verb, outbox, to, operator)
        assert isinstance(done, Changed | Raised | TakeoverChanged)  # noqa: S101 - of these targets
        return said(done)

    return act
