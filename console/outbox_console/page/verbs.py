"""What operators do on the page: first it says what a verb will do, then it does it."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from functools import partial
from urllib.parse import urlencode

from outbox_api.base.errors import ConfigError
from outbox_core import operations
from outbox_core.operations import Arguments, Forgotten, LetterFilter, Operator, Target, Verb
from outbox_core.settings import HarvestSettings
from outbox_core.status.model import status_of
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from outbox_console.page.choices import filter_of_address, integers, seconds_of, topic_of, wanted_of
from outbox_console.page.parts import Parts
from outbox_console.requests import RefusedError, single_fields
from outbox_console.view.dead_letters import letter
from outbox_console.view.letters import AT_ONCE
from outbox_console.view.verbs import Confirmation, begun, said

MOST_REMEMBERED = 500
"""Forms whose outcome is remembered, so that one that is sent twice acts once."""

_ASKED = frozenset({Target.LETTERS, Target.CLUSTER, Target.LEADER, Target.REPLAY, Target.TOPIC})
"""What an address can be about that asks before something is done."""
_TARGETS = _ASKED | {Target.KEPT, Target.KEY}
"""What a form can be about."""
_KEPT = frozenset({Target.KEPT, Target.KEY, Target.REPLAY})
"""What is done in the view of kept records."""


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
        verb, query = _verb(request, _ASKED), request.query_params
        outbox = self._parts.outboxes.named(query.get("outbox"))
        cluster = _cluster(verb, query)
        if verb.about.target is Target.LETTERS:
            confirmation = (
                await self.of_matching(verb, outbox, filter_of_address(query))
                if query.get("all") == "1"
                else await self._of_letters(verb, outbox, integers(",".join(query.getlist("id"))))
            )
        elif verb.about.target is Target.TOPIC:
            confirmation = await self._of_topic(verb, outbox, topic_of(query))
        elif verb.about.target is Target.REPLAY:
            confirmation = Confirmation.of_replay_to_end(query.get("replay", ""))
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
        return self.ask(request, verb, outbox, confirmation, verb.effect(cluster))

    def ask(
        self, request: Request, verb: Verb, outbox: HarvestSettings, confirmation: Confirmation, effect: str
    ) -> Response:
        """Shows a page that asks before a verb is done."""
        return self._parts.page(
            request,
            "do.html",
            verb=str(verb),
            outbox=outbox.title,
            confirmation=confirmation,
            effect=effect,
            back=self._back(verb, outbox, {}),
            form=secrets.token_urlsafe(12),
            longest=operations.LONGEST_REASON,
        )

    async def do(self, request: Request) -> Response:
        """Does it, and then leads back to the outbox, which says what came of it."""
        verb = _verb(request, _TARGETS)
        form = await single_fields(request)
        outbox = self._parts.outboxes.named(form.get("outbox"))
        who = self._parts.access.name(request)
        number = form.get("form") or secrets.token_urlsafe(12)
        act = self._act(verb, outbox, form, Operator(who, "http", _reason(form)))
        what = verb, outbox.title, {**form, "reason": ""}

        async def once() -> str:
            try:
                return await self._parts.work.action(act)
            finally:
                self._parts.outboxes.changed(outbox)

        await self._deeds.once(who, number, what, once)
        return RedirectResponse(self._back(verb, outbox, {"done": number}), 303)

    def _back(self, verb: Verb, outbox: HarvestSettings, more: Mapping[str, str]) -> str:
        """Returns the address of the page from which a verb is done."""
        path, name = ("kept", "outbox") if verb.about.target in _KEPT else ("outbox", "name")
        return f"{self._parts.access.prefix}/{path}?{urlencode({name: outbox.title, **more})}"

    def outcome(self, request: Request) -> tuple[str, bool]:
        """Returns what came of the form that has led to an address, or that this is not known here."""
        client, number = self._parts.access.client(request), request.query_params.get("done", "")
        done = self._deeds.outcome(client.name, number) if client and number else ""
        return done, bool(number and not done)

    def _act(
        self, verb: Verb, outbox: HarvestSettings, form: Mapping[str, str], operator: Operator
    ) -> Callable[[], str]:
        """Returns what does it, and says what came of it."""
        if verb.about.target is Target.KEPT:
            wanted, rate = wanted_of(form)
            return lambda: begun(wanted.name, self._parts.replays.begin(outbox, wanted, operator, rate))
        return _act(verb, outbox, form, operator)

    async def of_matching(self, verb: Verb, outbox: HarvestSettings, chosen: LetterFilter) -> Confirmation:
        """Returns what is asked before a verb is done to all dead letters that a filter means."""

        def look() -> Confirmation:
            found = operations.letters(outbox, verb.about.status, chosen.keys)
            matching = chosen.chosen(found, outbox.key_names)
            shown = [letter(each, outbox.key_names) for each in matching[:AT_ONCE]]
            said, where = chosen.named(outbox.key_names), chosen.pinned(matching)
            return Confirmation.of_matching(verb, len(matching), shown, said, where)

        return await self._parts.work.read(look)

    async def _of_topic(self, verb: Verb, outbox: HarvestSettings, topic: str | None) -> Confirmation:
        waiting = await self._parts.work.survey(partial(operations.topics_waiting, outbox))
        if topic is None:
            return Confirmation.of_topics(waiting)
        return Confirmation.of_pause(verb, topic, waiting)

    async def _of_letters(self, verb: Verb, outbox: HarvestSettings, ids: Sequence[int]) -> Confirmation:
        found = await self._parts.work.read(partial(operations.letters, outbox, verb.about.status))
        chosen = [each for each in found if each.record.id in set(ids)]
        gone = sorted({*ids} - {each.record.id for each in chosen})
        return Confirmation.of_letters(verb, [letter(each, outbox.key_names) for each in chosen], gone)


def _verb(request: Request, targets: AbstractSet[Target]) -> Verb:
    name = request.path_params["verb"]
    verb = next((each for each in Verb if each == name and each.about.target in targets), None)
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


def _cluster(verb: Verb, form: Mapping[str, str]) -> int | None:
    if verb.about.target is not Target.CLUSTER:
        return None
    found = integers(form.get("cluster", ""))
    if len(found) != 1:
        raise RefusedError(400, "name the cluster, by its number")
    return found[0]


def _letters(form: Mapping[str, str]) -> Arguments:
    """Returns the dead letters of a form: by their ids, or all that met conditions when it was made."""
    if "where" in form:
        try:
            where = LetterFilter.of(json.loads(form["where"]))
        except (ValueError, TypeError, AttributeError, ConfigError) as error:
            raise RefusedError(400, f"nothing was done: the conditions cannot be read: {error}") from None
        expected = next(iter(integers(form.get("expected", ""))), 0)
        return Arguments(where=where, expected=expected)
    ids = integers(form.get("ids", ""))
    if not ids:
        raise RefusedError(400, "nothing was done: no record is chosen")
    return Arguments(ids)


def _act(
    verb: Verb, outbox: HarvestSettings, form: Mapping[str, str], operator: Operator
) -> Callable[[], str]:
    """Returns what does it, and says what came of it."""
    # A proxy may bring a form that is sent twice to two harvesters, or an hour later.
    seen = next(iter(integers(form.get("seen", ""))), None)
    to = Arguments((), _cluster(verb, form) or 0, seen, name=form.get("replay", ""))
    if verb.about.target is Target.LETTERS:
        to = _letters(form)
    if verb.about.target is Target.TOPIC:
        if (topic := topic_of(form)) is None:
            raise RefusedError(400, "nothing was done: name the topic")
        to = to._replace(topic=topic, seconds=seconds_of(form) if verb is Verb.PAUSE else None)
    if verb.about.target is Target.KEY:
        to = to._replace(key=form.get("key", ""), tombstone=form.get("tombstone", ""))
        if form.get("again") != to.key:
            raise RefusedError(400, "nothing was done: what was typed is not the key")

    def act() -> str:
        done = operations.perform(verb, outbox, to, operator)
        assert not isinstance(done, Forgotten | list)  # noqa: S101 - of other targets
        return said(done)

    return act
