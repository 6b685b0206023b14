"""The JSON side of kept records: how much is kept, and which; replays, and how far they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

from fastapi import Query
from outbox_api.seams.kept import KeptRecord
from outbox_core import operations
from outbox_core.operations import Choice, Operator, Prepared, Verb
from outbox_core.settings import HarvestSettings
from starlette.requests import Request

from outbox_console import kept_schemas as schemas
from outbox_console.access import Access
from outbox_console.replays import Replays
from outbox_console.schemas import Data, Header, data_of
from outbox_console.work import Work

MOST = 1000
"""Kept records in one answer."""

OutboxQuery = Annotated[
    str | None, Query(description="The outbox, by its label or table; optional where there is only one.")
]
_Key = Annotated[str | None, Query(description="Those of this key, whole.")]
_Topics = Annotated[list[str], Query(alias="topic", description="Of a topic that matches, with * and ?.")]
_Time = Annotated[str, Query(description="Delivered then or later: ISO 8601, or a duration back from now.")]
_Until = Annotated[str, Query(description="Delivered before then; likewise.")]
_Where = Annotated[list[str], Query(description="Conditions, such as `id >= 4711`, which all hold.")]
_After = Annotated[int, Query(ge=0, lt=2**63, description="Those of a higher position.")]
_Limit = Annotated[int, Query(ge=1, le=MOST, description="How many at most.")]


class KeptApi:
    """Answers requests of programs about kept records."""

    def __init__(
        self, named: Callable[[str | None], HarvestSettings], access: Access, work: Work, replays: Replays
    ) -> None:
        self._named = named
        self._access = access
        self._work = work
        self._replays = replays

    async def days(self, outbox: OutboxQuery = None) -> schemas.KeptDays:
        """Returns how much is kept of each day."""
        settings = self._named(outbox)
        found = await self._work.survey(partial(operations.kept_days, settings))
        days = [{"day": day, **asdict(kept)} for day, kept in found]
        return schemas.KeptDays.model_validate(
            {"records": sum(kept.records for _, kept in found), "days": days}
        )

    async def records(  # noqa: PLR0917 - FastAPI makes each parameter a field of the query
        self,
        outbox: OutboxQuery = None,
        key: _Key = None,
        topics: _Topics = [],  # noqa: B006 - FastAPI copies it
        since: _Time = "",
        until: _Until = "",
        where: _Where = [],  # noqa: B006 - likewise
        after: _After = 0,
        limit: _Limit = 100,
    ) -> schemas.KeptRecords:
        """Returns kept records without values and headers."""
        settings = self._named(outbox)
        choice = schemas.readable(
            Choice(key=key, topics=tuple(topics), since=since, until=until, where=tuple(where))
        )
        find = partial(operations.kept_records, settings, choice, limit, after)
        found = await self._work.survey(find)
        after_these = found[-1].position if len(found) == limit else None
        records = [schemas.KeptRecord(**_as_data(settings, each)) for each in found]
        return schemas.KeptRecords(records=records, next=after_these)

    async def reveal(self, asked: schemas.Position, request: Request) -> schemas.KeptContent:
        """Returns a kept record with its value and headers; the journal notes who has seen them."""
        settings = self._named(asked.outbox)
        operator = self._operator(request, asked.reason)
        look = partial(operations.reveal_kept, settings, asked.position, operator)
        found = await self._work.action(look)
        record = found.record
        return schemas.KeptContent(
            **_as_data(settings, found),
            partition=record.partition,
            timestamp_ms=record.timestamp_ms,
            value=Data(**data_of(record.value)),
            headers=[Header(name=name, **data_of(value)) for name, value in record.headers],
        )

    async def replay(self, asked: schemas.Replaying, request: Request) -> schemas.ReplayBegun:
        """Begins a replay, or goes on with it, and does not wait for its end; or tells what it would do."""
        settings, wanted = self._named(asked.outbox), asked.wanted()
        prepared: Prepared | None
        if asked.dry_run:
            look = partial(operations.prepare_replay, settings, wanted, read_only=True)
            prepared = await self._work.survey(look)
        else:
            operator = self._operator(request, asked.reason)
            begin = partial(self._replays.begin, settings, wanted, operator, asked.rate)
            prepared = await self._work.action(begin)
        told: dict[str, Any] = dict.fromkeys(("resumes", "stashed", "chosen", "kept", "first", "last"))
        if prepared is not None:
            ends = {"first": prepared.first, "last": prepared.last}
            told = {
                "resumes": prepared.resumed,
                "stashed": prepared.state.done,
                "chosen": prepared.state.chosen,
                "kept": prepared.kept,
                **{name: each and _as_data(settings, each) for name, each in ends.items()},
            }
        return schemas.ReplayBegun.model_validate(
            {
                "name": asked.name,
                "dry_run": asked.dry_run,
                "running": not asked.dry_run,
                "effect": Verb.REPLAY.effect(),
                **told,
            }
        )

    async def replays(self, outbox: OutboxQuery = None) -> schemas.ReplayStates:
        """Returns replays, and how far they are."""
        settings = self._named(outbox)
        found = await self._work.read(partial(operations.list_replays, settings))
        here = self._replays.last(settings)
        told = []
        for each in found:
            run = here if here is not None and here.name == each.name else None
            told.append(
                schemas.ReplayState(
                    name=each.name,
                    begun=each.begun,
                    subject=each.subject,
                    running=run is not None and run.is_running,
                    chosen=each.state.chosen if each.state else None,
                    stashed=each.state.done if each.state else None,
                    ended=each.ended,
                    outcome=each.outcome,
                    error=run.error if run is not None and not each.ended else "",
                )
            )
        return schemas.ReplayStates(replays=told)

    def _operator(self, request: Request, reason: str) -> Operator:
        return Operator(self._access.name(request), "http", reason)


def _as_data(settings: HarvestSettings, kept: KeptRecord) -> dict[str, Any]:
    record = kept.record
    return {
        "position": kept.position,
        "key": record.key,
        "key_in_logs": settings.key_names.of_listed(record.key),
        "topic": record.topic,
        "id": record.id,
        "delivered_at": kept.delivered_at,
        "token": kept.token,
        "has_value": kept.has_value,
        "has_headers": kept.has_headers,
        "superseded": kept.superseded,
    }
