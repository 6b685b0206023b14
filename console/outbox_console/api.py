"""The JSON side: what programs ask of outboxes, and have done to them."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from outbox_core import operations
from outbox_core.config.settings import HarvestSettings
from outbox_core.history import History
from outbox_core.monitoring.figures import RunningOutboxes
from outbox_core.operations import Object, Operator, Verb
from outbox_sdk.parking import DeadLetter, DeadLetterStatus
from outbox_sdk.record import MarkedRecord
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from outbox_console import body_limits, schemas
from outbox_console.access import Access
from outbox_console.openapi import VERBS, description
from outbox_console.refusals import RefusedError
from outbox_console.work import Work

MOST_LETTERS = 1000
"""Dead letters in one answer, unless fewer are asked for."""
MOST_ENTRIES = 1000
"""Entries of the journal in one answer."""
ENTRIES = 100
"""Entries of the journal, unless another number is asked for."""

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class Api:
    """Answers requests of programs.

    Args:
        observe: Returns the outboxes that this process harvests.
        access: Says who may.
        work: Works with databases.
        history: Returns what this process has seen of the outbox of that title.
    """

    def __init__(
        self, observe: RunningOutboxes, access: Access, work: Work, history: Callable[[str], History]
    ) -> None:
        self._observe = observe
        self._access = access
        self._work = work
        self._history = history

    def routes(self) -> list[Route]:
        """Returns what is served."""
        viewer = self._access.viewer
        return [
            Route("/openapi.json", viewer(self.description)),
            Route("/api/parked", viewer(self.parked)),
            Route("/api/journal", viewer(self.journal)),
            Route("/api/history", viewer(self.history)),
            *(Route(f"/api/{verb}", self._verb(verb), methods=["POST"]) for verb in VERBS),
            Route("/api/{rest:path}", self._access.anybody(self.nothing), methods=_METHODS),
        ]

    async def description(self, _: Request) -> Response:
        """Describes this side, for programs."""
        return JSONResponse(description(self._access.prefix))

    async def parked(self, request: Request) -> Response:
        """Returns dead letters, without values."""
        outbox = self._outbox(request.query_params.get("outbox"))
        status = _status(request.query_params.get("status"))
        limit = _limit(request, MOST_LETTERS, MOST_LETTERS)
        found = await self._work.read(lambda: operations.letters(outbox, status))
        letters = [_letter(outbox, each) for each in found[:limit]]
        return _answer(schemas.ParkedLetters(total=len(found), letters=letters))

    async def journal(self, request: Request) -> Response:
        """Returns what operators have done."""
        outbox = self._outbox(request.query_params.get("outbox"))
        limit = _limit(request, ENTRIES, MOST_ENTRIES)
        found = await self._work.read(lambda: operations.entries(outbox, limit))
        entries = [
            schemas.JournalEntry(
                id=each.id,
                at=each.at,
                operator=each.action.operator,
                via=each.action.via,
                verb=each.action.verb,
                subject=each.action.subject,
                reason=each.action.reason,
                outcome=each.outcome,
            )
            for each in found
        ]
        return _answer(schemas.Entries(entries=entries))

    async def history(self, request: Request) -> Response:
        """Returns what was seen in the last hour."""
        history = self._history(self._outbox(request.query_params.get("outbox")).title)
        points = [
            schemas.HistoryPoint(
                at=each.at, records=each.records, oldest_seconds=each.oldest, records_per_second=each.rate
            )
            for each in history.points()
        ]
        events = [
            schemas.HistoryEventAnswer(at=each.at, code=each.code, text=each.text)
            for each in history.events()
        ]
        return _answer(schemas.LastHour(points=points, events=events))

    async def nothing(self, request: Request) -> Response:
        """Says that there is no such address, or that it is asked for in the wrong way."""
        name = request.path_params["rest"]
        if name in VERBS:
            raise RefusedError(405, "this changes something: ask by POST", {"Allow": "POST"})
        if name in {"parked", "journal", "history"}:
            raise RefusedError(405, "this can only be read: ask by GET", {"Allow": "GET, HEAD"})
        raise RefusedError(404, "there is no such address: /openapi.json lists all")

    def _verb(self, verb: Verb) -> Callable[[Request], Any]:
        body, answer = VERBS[verb]

        async def serve(request: Request) -> Response:
            asked = await body_limits.json(request, body)
            outbox = self._outbox(asked.outbox)
            client = self._access.client(request)
            operator = Operator(client.name if client else "", "http", asked.reason)
            do = partial(operations.perform, verb, outbox, _to(asked), operator)
            return _answer(await self._work.action(lambda: _done(answer, do(), asked)))

        return self._access.operator(serve)

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


def _to(asked: schemas.Body) -> Object:
    """Returns what a body names."""
    return Object(
        getattr(asked, "ids", ()), getattr(asked, "cluster", 0), getattr(asked, "fence_token", None)
    )


def _done(answer: type[BaseModel], done: operations.Done, asked: schemas.Body) -> BaseModel:
    """Returns what came of a verb.

    Raises:
        RefusedError: All dead letters that were asked for are gone.
    """
    if isinstance(done, list):
        ids = {each.record.id for each in done}
        gone = tuple(sorted(set(_to(asked).ids) - ids))
        _refuse_if_gone(done, gone)
        return schemas.Revealed(letters=[_content(each.record) for each in done], gone=list(gone))
    if isinstance(done, operations.Changed):
        _refuse_if_gone(done.changed, done.gone)
    return answer.model_validate(done)


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
    headers = [schemas.Header(name=name, **_data(value)) for name, value in record.headers]
    return schemas.Content(
        id=record.id, key=record.key, value=schemas.Data(**_data(record.value)), headers=headers
    )


def _data(value: str | bytes | None) -> dict[str, str]:
    if value is None:
        return {}
    return {"text": value} if isinstance(value, str) else {"base64": b64encode(value).decode()}


def _status(text: str | None) -> DeadLetterStatus | None:
    if text is None:
        return None
    try:
        return DeadLetterStatus(text)
    except ValueError:
        raise RefusedError(400, f"status: write {' or '.join(DeadLetterStatus)}") from None


def _limit(request: Request, usual: int, most: int) -> int:
    text = request.query_params.get("limit", str(usual))
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and 1 <= int(text) <= most):
        raise RefusedError(400, f"limit: write a number from 1 to {most}")
    return int(text)


def _answer(answer: BaseModel) -> Response:
    # Keys may hold what no UTF-8 can, which escapes can.
    return Response(json.dumps(answer.model_dump(mode="json")), media_type="application/json")
