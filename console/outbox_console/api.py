"""The JSON side: what programs ask of outboxes, and have done to them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Annotated, Any, NamedTuple
from uuid import UUID

from fastapi import APIRouter, Depends, Query
from fastapi.datastructures import Default
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from outbox_api.base.errors import ConfigError
from outbox_api.base.record import MarkedRecord
from outbox_api.seams.parking import DeadLetter
from outbox_core import operations
from outbox_core.monitoring.figures import RunningOutboxes
from outbox_core.operations import Arguments, Operator, Target, Verb
from outbox_core.settings import HarvestSettings
from outbox_core.status.history import History
from outbox_core.status.minutes import Span, seen, topics_of
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from outbox_console import kept_schemas, letter_schemas, schemas
from outbox_console.access import Access
from outbox_console.kept_api import KeptApi, OutboxQuery
from outbox_console.minutes import KeptMinutes, MinuteReaders
from outbox_console.replays import Replays
from outbox_console.requests import AsciiJSON, RefusedError, with_json
from outbox_console.work import Work

_TOLD = Default(None)
"""What an answer is made of is what its function says that it returns."""
MOST = 1000
"""Entries of the journal in one answer."""
MOST_TOPICS = 100
"""Topics in an answer about the history."""
ENTRIES = 100
"""Entries of the journal, unless another number is asked for."""

_Span = Annotated[Span, Query(description="How long a while.")]
_Limit = Annotated[int, Query(ge=1, le=MOST, description="How many at most.")]


class Takes(NamedTuple):
    """What a verb takes and returns."""

    body: type[schemas.Body]
    answer: type[BaseModel]


_TAKES = {
    Target.LETTERS: Takes(letter_schemas.Letters, schemas.LettersChanged),
    Target.CONTENTS: Takes(letter_schemas.NamedLetters, schemas.Revealed),
    Target.LEADER: Takes(schemas.Leader, schemas.FenceRaised),
    Target.CLUSTER: Takes(schemas.OtherCluster, schemas.TakeoverDone),
    Target.TOPIC: Takes(schemas.Topic, schemas.PauseDone),
    Target.KEY: Takes(kept_schemas.Key, kept_schemas.KeyErased),
    Target.REPLAY: Takes(kept_schemas.ReplayName, kept_schemas.ReplayGivenUp),
}
VERBS: Mapping[Verb, Takes] = {
    verb: _TAKES[verb.about.target] for verb in Verb if verb.about.target in _TAKES
} | {Verb.PAUSE: Takes(schemas.TopicToPause, schemas.PauseDone)}
"""The verbs that a request does; ``replay`` outlasts it, and ``forget`` needs somebody at the brokers."""


class Api:
    """Answers requests of programs."""

    def __init__(
        self,
        observe: RunningOutboxes,
        access: Access,
        work: Work,
        history: Callable[[str], History],
        status: Callable[..., Any],
        *,
        replays: Replays,
        readers: MinuteReaders,
    ) -> None:
        self._observe = observe
        self._access = access
        self._work = work
        self._history = history
        self._readers = readers
        self._router = APIRouter(
            route_class=_route(access),
            default_response_class=AsciiJSON,
            dependencies=[Depends(HTTPBearer(scheme_name="token", auto_error=False))],  # only described
            responses=schemas.REFUSED,
            generate_unique_id_function=lambda route: route.name,
        )
        self._read("/openapi.json", self.description, "Describe this interface")
        self._read("/status", status, "Tell the state of all outboxes, as `outbox status --json`")
        self._read("/api/parked", self.parked, "List dead letters, without values")
        self._read("/api/waiting", self.waiting, "Tell what waits, by topic and key")
        self._read("/api/waiting/key", self.waiting_key, "List the rows of a key, without values")
        self._read("/api/journal", self.journal, "List what operators have done")
        self._read("/api/history", self.history, "Tell the figures of a while, and what happened")
        kept = KeptApi(self._outbox, access, work, replays)
        self._read("/api/kept/days", kept.days, "Tell how much is kept of each day")
        self._read("/api/kept", kept.records, "Find kept records, without values")
        self._read("/api/replays", kept.replays, "List replays, and how far they are")
        self._change(
            "/api/kept/reveal", kept.reveal, "Return all of a kept record", kept_schemas.REVEAL_EFFECT
        )
        self._change("/api/replay", kept.replay, Verb.REPLAY.about.summary, Verb.REPLAY.effect())
        for verb, takes in VERBS.items():
            do = self._verb(verb, takes.body)
            self._change(f"/api/{verb}", do, verb.about.summary, verb.effect(), answer=takes.answer)

    @property
    def routes(self) -> list[BaseRoute]:
        """What is served."""
        return self._router.routes

    async def description(self) -> dict[str, Any]:
        """Describes this side, for programs."""
        return self._described

    @cached_property
    def _described(self) -> dict[str, Any]:
        return get_openapi(
            title="outbox",
            version="1",
            description="What programs ask of the outboxes of a harvester, and have done to them.",
            servers=[{"url": self._access.prefix}] if self._access.prefix else None,
            routes=self._router.routes,
        )

    async def parked(
        self,
        where: Annotated[letter_schemas.LettersQuery, Query()],
    ) -> schemas.ParkedLetters:
        """Returns dead letters, without values."""
        settings, chosen = self._outbox(where.outbox), where.read()

        def find() -> list[DeadLetter]:
            return chosen.chosen(operations.letters(settings, where.status, chosen.keys), settings.key_names)

        found = await self._work.read(find)
        rest = [each for each in found if where.after is None or each.record.id > where.after]
        letters = [_letter(settings, each) for each in rest[: where.limit]]
        return schemas.ParkedLetters(
            total=len(found),
            until=max((each.since for each in found), default=None),
            letters=letters,
            next=letters[-1].id if len(rest) > len(letters) else None,
        )

    async def waiting(
        self,
        outbox: OutboxQuery = None,
        topic: Annotated[str | None, Query(description="Only what is of this topic.")] = None,
    ) -> letter_schemas.WhatWaits:
        """Returns which topics and keys the first rows have, and why they wait."""
        settings = self._outbox(outbox)
        found = await self._work.survey(partial(operations.what_waits, settings))
        return letter_schemas.WhatWaits.model_validate(found.of_topic(topic).as_data(settings.key_names))

    async def waiting_key(
        self,
        outbox: OutboxQuery = None,
        key: Annotated[str | None, Query(description="The key, whole.")] = None,
        of: Annotated[int, Query(alias="id", description="Instead: a row of it, by its id.")] = 0,
    ) -> letter_schemas.WaitingKey:
        """Returns the first rows of a key, and how many there are; may read the whole table."""
        settings = self._outbox(outbox)
        found = await self._work.survey(partial(operations.rows_of_key, settings, key, of))
        return letter_schemas.WaitingKey.model_validate(operations.key_as_data(found, settings.key_names))

    async def journal(  # noqa: PLR0917 - FastAPI makes each parameter a field of the query
        self,
        outbox: OutboxQuery = None,
        operator: Annotated[str, Query(description="What the operator's name contains.")] = "",
        verb: Annotated[str, Query(description="The verb.")] = "",
        since: Annotated[str, Query(description="Begun then or later: ISO 8601, or how long ago.")] = "",
        until: Annotated[str, Query(description="Begun before then; likewise.")] = "",
        after: Annotated[UUID | None, Query(description="Those behind this entry, by its id.")] = None,
        limit: _Limit = ENTRIES,
    ) -> schemas.Entries:
        """Returns what operators have done."""
        settings = self._outbox(outbox)
        try:
            chosen = operations.entries_of(operator, verb, since, until, str(after or ""))
        except ConfigError as error:
            raise RefusedError(400, str(error)) from None
        found = await self._work.read(lambda: operations.entries(settings, limit, chosen))
        entries = [
            schemas.JournalEntry(id=each.id, at=each.at, outcome=each.outcome, **asdict(each.action))
            for each in found
        ]
        return schemas.Entries(entries=entries)

    async def history(self, outbox: OutboxQuery = None, span: _Span = Span.HOUR) -> schemas.History:
        """Returns the figures of a while, and what happened in it."""
        settings = self._outbox(outbox)
        history = self._history(settings.title)
        try:
            kept = await self._work.read(partial(self._readers.read, settings))
        except RefusedError as error:  # what this process has seen itself will do
            kept = KeptMinutes(error=str(error))
        since = datetime.now(UTC) - span.length
        found = seen(kept.minutes, history.points(), history.events(), since)
        return schemas.History(
            span=span,
            points=[schemas.HistoryPoint.model_validate(each) for each in found.points],
            events=[schemas.HistoryEventAnswer.model_validate(each) for each in found.events],
            takeovers=found.takeovers,
            topics=[
                schemas.HistoryTopic.model_validate(each)
                for each in topics_of(kept.minutes, since)[:MOST_TOPICS]
            ],
            not_kept=kept.error or history.error,
        )

    def _read(self, path: str, answer: Callable[..., Any], summary: str) -> None:
        # The first serves, the second is described, as a description of HEAD would repeat that of GET.
        self._router.add_api_route(path, answer, methods=["GET", "HEAD"], include_in_schema=False)
        self._router.add_api_route(path, answer, summary=summary, response_description="Done.")

    def _change(
        self, path: str, do: Callable[..., Any], summary: str, effect: str, answer: Any = _TOLD
    ) -> None:
        self._router.add_api_route(
            path,
            do,
            methods=["POST"],
            name=path.removeprefix("/api/").replace("/", "-"),
            summary=summary,
            description=effect,
            response_model=answer,
            response_description="Done.",
            responses=schemas.REFUSED_TO_CHANGE,
        )

    def _verb(self, verb: Verb, body: type[schemas.Body]) -> Callable[..., Any]:
        async def do(asked: schemas.Body, request: Request) -> object:
            outbox = self._outbox(asked.outbox)
            operator = Operator(self._access.name(request), "http", asked.reason)
            to = Arguments(**asked.model_dump(exclude={"outbox", "reason", "where"}))
            if isinstance(asked, letter_schemas.Letters) and asked.where is not None:
                to = to._replace(where=asked.where.read())
            perform = partial(operations.perform, verb, outbox, to, operator)
            return await self._work.action(lambda: _done(perform(), to.ids))

        do.__annotations__["asked"] = body  # which FastAPI reads
        return do

    def _outbox(self, title: str | None) -> HarvestSettings:
        outboxes = [each.settings for each in self._observe()]
        if title is None:
            if len(outboxes) != 1:
                raise RefusedError(400, f"outbox: choose one, as this process harvests {len(outboxes)}")
            return outboxes[0]
        for outbox in outboxes:
            if outbox.title == title:
                return outbox
        raise RefusedError(404, "outbox: this process harvests no outbox of that name")


def _route(access: Access) -> type[APIRoute]:
    """Returns routes that decide who may, and then how long a body may be, before FastAPI reads it."""

    class Guarded(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handler = super().get_route_handler()

            async def changing(request: Request) -> Response:
                return await handler(await with_json(request))

            is_read = self.methods is not None and self.methods <= {"GET", "HEAD"}
            return access.viewer(handler) if is_read else access.operator(changing)

    return Guarded


def _done(done: operations.Done, ids: Sequence[int]) -> object:
    """Returns what came of a verb."""
    if isinstance(done, list):
        gone = sorted({*ids} - {each.record.id for each in done})
        _refuse_if_gone(done, gone)
        return schemas.Revealed(letters=[_content(each.record) for each in done], gone=gone)
    if isinstance(done, operations.Changed):
        _refuse_if_gone(done.changed, done.gone or range(done.fewer))
    return done


def _refuse_if_gone(changed: Sequence[object], gone: Sequence[int]) -> None:
    if gone and not changed:
        raise RefusedError(
            409, "none of these dead letters exists any more in the state that this needs: list them anew"
        )


def _letter(outbox: HarvestSettings, letter: DeadLetter) -> schemas.Letter:
    return schemas.Letter(
        id=letter.record.id,
        status=letter.status,
        topic=letter.record.topic,
        key=letter.record.key,
        key_in_logs=outbox.key_names.of_listed(letter.record.key),
        reason=letter.reason,
        attempts=letter.attempts,
        since=letter.since,
        age_seconds=letter.age,
    )


def _content(record: MarkedRecord) -> schemas.Content:
    headers = [schemas.Header(name=name, **schemas.data_of(value)) for name, value in record.headers]
    return schemas.Content(
        id=record.id, key=record.key, value=schemas.Data(**schemas.data_of(record.value)), headers=headers
    )
