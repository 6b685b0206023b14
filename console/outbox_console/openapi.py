"""The description of the JSON side, as OpenAPI has it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from outbox_core.operations import Target, Verb
from outbox_sdk.parking import DeadLetterStatus
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from outbox_console import schemas


class Parameter(NamedTuple):
    """A parameter of a query."""

    name: str
    schema: Mapping[str, Any]
    description: str


class Read(NamedTuple):
    """An address that is only read."""

    path: str
    summary: str
    answer: type[BaseModel]
    query: tuple[Parameter, ...]


class Takes(NamedTuple):
    """What a verb takes and returns."""

    body: type[schemas.Body]
    answer: type[BaseModel]


_TAKES = {
    Target.LETTERS: Takes(schemas.Letters, schemas.LettersChanged),
    Target.CONTENTS: Takes(schemas.Letters, schemas.Revealed),
    Target.LEADER: Takes(schemas.Leader, schemas.FenceRaised),
    Target.CLUSTER: Takes(schemas.OtherCluster, schemas.TakeoverDone),
}
VERBS: Mapping[Verb, Takes] = {
    verb: _TAKES[verb.about.target] for verb in Verb if verb.about.target in _TAKES
}
"""The verbs that are done over HTTP; ``forget`` is none, as it needs somebody at the brokers."""

_OUTBOX = Parameter(
    "outbox",
    {"type": "string"},
    "The outbox, by its label or table; optional where there is only one.",
)
_STATUS = Parameter(
    "status",
    {"type": "string", "enum": list(DeadLetterStatus)},
    "In which state; without it, in any.",
)
_LIMIT = Parameter("limit", {"type": "integer", "minimum": 1, "maximum": 1000}, "How many at most.")

_READS = (
    Read(
        "/api/parked", "List dead letters, without values", schemas.ParkedLetters, (_OUTBOX, _STATUS, _LIMIT)
    ),
    Read("/api/journal", "List what operators have done", schemas.Entries, (_OUTBOX, _LIMIT)),
    Read("/api/history", "Tell what happened in the last hour", schemas.LastHour, (_OUTBOX,)),
)
_REFUSED = {
    "400": "The request is wrong; the error names the field.",
    "401": "The client has not said who it is, or nobody knows its token.",
    "403": "The client may not do this.",
    "404": "This process harvests no outbox of that name.",
    "502": "The database refuses.",
    "503": "The database is away, or too many others wait for one.",
    "504": "The database has not answered in time. What changes something may be done nevertheless.",
}
_REFUSED_TO_CHANGE = {
    "409": "What is to be changed is gone, or the outbox cannot do this.",
    "413": "The body is too long.",
    "415": "The body is not of the type application/json.",
}


@cache
def description(prefix: str = "") -> dict[str, Any]:
    """Returns the description; it is the same for all.

    Args:
        prefix: What the paths of the server begin with.
    """
    answers: list[type[BaseModel]] = [schemas.Refusal, *(each.answer for each in _READS)]
    answers += [takes.answer for takes in VERBS.values()]
    wanted: dict[tuple[type[BaseModel], JsonSchemaMode], None] = {
        **{(answer, "serialization"): None for answer in answers},
        **{(takes.body, "validation"): None for takes in VERBS.values()},
    }
    _, defined = models_json_schema(list(wanted), ref_template="#/components/schemas/{model}")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "outbox",
            "version": "1",
            "description": "What programs ask of the outboxes of a harvester, and have done to them.",
        },
        **({"servers": [{"url": prefix}]} if prefix else {}),
        "security": [{"token": []}],
        "paths": {
            "/openapi.json": {"get": _described("Describe this interface", {"type": "object"})},
            "/status": {
                "get": _described(
                    "Tell the state of all outboxes, as `outbox status --json`", {"type": "object"}
                )
            },
            **{each.path: {"get": _read(each)} for each in _READS},
            **{f"/api/{verb}": {"post": _verb(verb, takes)} for verb, takes in VERBS.items()},
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": defined["$defs"],
        },
    }


def _read(read: Read) -> dict[str, Any]:
    parameters = [
        {"name": each.name, "in": "query", "schema": each.schema, "description": each.description}
        for each in read.query
    ]
    return {**_described(read.summary, _reference(read.answer)), "parameters": parameters}


def _verb(verb: Verb, takes: Takes) -> dict[str, Any]:
    return {
        **_described(verb.about.summary, _reference(takes.answer), _REFUSED | _REFUSED_TO_CHANGE),
        "description": verb.effect(),
        "requestBody": {"required": True, "content": _json(_reference(takes.body))},
    }


def _described(
    summary: str, answer: Mapping[str, Any], refused: Mapping[str, str] = _REFUSED
) -> dict[str, Any]:
    told = _json(_reference(schemas.Refusal))
    return {
        "summary": summary,
        "responses": {
            "200": {"description": "Done.", "content": _json(answer)},
            **{code: {"description": what, "content": told} for code, what in sorted(refused.items())},
        },
    }


def _json(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _reference(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}
